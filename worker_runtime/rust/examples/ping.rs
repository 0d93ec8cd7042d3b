//! examples/ping.c in Rust.

use crunrt::{Error, Group, Message, Runtime};

/// Ranks 0 and 1, with blocking calls and in alternation.
fn ping_pong(world: &mut Group<'_>) -> Result<(), Error> {
    let rank = world.rank();
    let mut ball = [0_i64];
    if rank > 1 {
        return Ok(());
    }
    for turn in 0..4 {
        if turn % 2 == rank {
            ball[0] += 1;
            world.send(&ball, 1 - rank, 0)?;
        } else {
            world.recv(&mut ball, 1 - rank, 0)?;
            println!("rank {rank} has the ball: {}", ball[0]);
        }
    }
    Ok(())
}

/// Every rank sends to its right and receives from its left at the same time.
fn shift(world: &mut Group<'_>) -> Result<(), Error> {
    let (rank, size) = (world.rank(), world.size());
    let (mine, mut from_left) = ([rank as i64], [-1_i64]);
    world.batch(&mut [
        Message::Receive(&mut from_left, (rank + size - 1) % size, 1),
        Message::Send(&mine, (rank + 1) % size, 1),
    ])?;
    println!("rank {rank} got {} from its left", from_left[0]);
    Ok(())
}

fn main() -> Result<(), Error> {
    let rt = Runtime::new()?;
    let mut world = rt.group()?;
    ping_pong(&mut world)?;
    shift(&mut world)?;
    world.barrier()
}
