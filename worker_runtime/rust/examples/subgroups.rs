//! examples/subgroups.c in Rust.

use crunrt::{Error, GroupOptions, Reduce, Runtime};

fn main() -> Result<(), Error> {
    let rt = Runtime::new()?;
    for (parity, name) in ["evens", "odds"].into_iter().enumerate().take(rt.world_size()) {
        let ranks: Vec<usize> = (parity..rt.world_size()).step_by(2).collect();
        let options =
            GroupOptions { name: Some(name), ranks: Some(&ranks), ..GroupOptions::default() };
        // every rank makes every group, in the same order; a rank outside gets None
        if let Some(mut group) = rt.group_with(&options)? {
            let mut sum = [rt.rank() as i32];
            group.all_reduce(&mut sum, Reduce::Sum)?;
            println!(
                "rank {} is number {} of the {} {name}; their sum is {}",
                rt.rank(), group.rank(), ranks.len(), sum[0]
            );
            group.barrier()?;
        }
    }
    Ok(())
}
