//! A small examples/elastic.c in Rust: rank 1 kills itself at step 50 of its first life; the other
//! processes go on, and all end with the same sum.

use crunrt::{Error, Reduce, Runtime};

const LAST: i64 = 100;

struct Model {
    step: i64,
    sum: f64,
}

/// Makes steps until all are made (true), or until the round ends (false).
fn run_round(rt: &Runtime, model: &mut Model) -> Result<bool, Error> {
    let mut world = rt.group()?;
    let steps = world.all_gather(&[model.step])?;
    let best = (0..steps.len()).max_by_key(|&r| (steps[r], std::cmp::Reverse(r))).unwrap_or(0);
    let mut newest = [model.sum];
    world.broadcast(&mut newest, best)?;
    (model.step, model.sum) = (steps[best], newest[0]);
    while model.step < LAST {
        if rt.rank() == 1 && rt.restart_count() == 0 && model.step == 50 {
            std::process::abort();
        }
        let mut add = [model.step as f64 / rt.world_size() as f64];
        world.all_reduce(&mut add, Reduce::Sum)?;
        model.sum += add[0];
        model.step += 1;
        if rt.step()?.is_some() {
            return Ok(false);
        }
    }
    Ok(true)
}

fn main() -> Result<(), Error> {
    let mut rt = Runtime::new()?;
    let (mut model, mut rounds) = (Model { step: 0, sum: 0.0 }, 0);
    rt.can_rejoin(true)?;
    loop {
        rounds += 1;
        if let Ok(true) = run_round(&rt, &mut model) {
            break;
        }
        rt.rejoin()?;
    }
    println!("rank {}: {rounds} rounds, {} steps, sum {}", rt.rank(), model.step, model.sum);
    Ok(())
}
