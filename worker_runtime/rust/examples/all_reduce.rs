//! examples/all_reduce.c in Rust.

fn main() -> Result<(), crunrt::Error> {
    let rt = crunrt::Runtime::new()?;
    let mut world = rt.group()?;
    let mut sum = [rt.rank() as f32];
    world.all_reduce(&mut sum, crunrt::Reduce::Sum)?;
    println!("rank {} of {}: the sum of all ranks is {}", rt.rank(), rt.world_size(), sum[0]);
    world.barrier()
}
