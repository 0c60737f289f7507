//! Prints the table of docs/memory.md.

use scalerl_worker::memory::table::markdown;

#[expect(clippy::print_stdout, reason = "that is all it does")]
fn main() -> Result<(), scalerl_model::error::LoadError> {
    print!("{}", markdown()?);
    Ok(())
}
