//! examples/hello.c in Rust.

fn main() -> Result<(), crunrt::Error> {
    let rt = crunrt::Runtime::new()?;
    let arrived = rt.store().add("hello", 1)?;
    let (rank, size) = (rt.rank(), rt.world_size());
    println!("hello from rank {rank} of {size}, number {arrived} to arrive");
    Ok(())
}
