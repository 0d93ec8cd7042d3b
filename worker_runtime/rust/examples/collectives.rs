//! examples/collectives.c in Rust: one of each collective.

use crunrt::{Error, Reduce, Runtime};

fn show(rank: usize, what: &str, numbers: &[i32]) {
    let words: Vec<String> = numbers.iter().map(i32::to_string).collect();
    println!("rank {rank}: {what} {}", words.join(" "));
}

fn main() -> Result<(), Error> {
    let rt = Runtime::new()?;
    let mut world = rt.group()?;
    let (rank, size) = (world.rank(), world.size());
    let own = [rank as i32];
    let all: Vec<i32> = (0..size).map(|i| (10 * rank + i) as i32).collect();
    let mut one = own;
    world.broadcast(&mut one, size - 1)?;
    show(rank, "broadcast", &one);
    one = own;
    world.all_reduce(&mut one, Reduce::Max)?;
    show(rank, "all_reduce", &one);
    one = own;
    world.reduce(&mut one, Reduce::Sum, 0)?;
    if rank == 0 {
        show(rank, "reduce", &one);
    }
    show(rank, "all_gather", &world.all_gather(&own)?);
    if let Some(numbers) = world.gather(&own, 0)? {
        show(rank, "gather", &numbers);
    }
    world.scatter((rank == 0).then_some(all.as_slice()), &mut one, 0)?;
    show(rank, "scatter", &one);
    world.reduce_scatter(&all, &mut one, Reduce::Sum)?;
    show(rank, "reduce_scatter", &one);
    let mut exchanged = vec![0; size];
    world.all_to_all(&all, &mut exchanged)?;
    show(rank, "all_to_all", &exchanged);
    world.barrier()
}
