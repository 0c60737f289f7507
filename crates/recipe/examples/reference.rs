//! Prints docs/recipe-reference.md.

use std::io::{self, Write as _};

fn main() -> io::Result<()> {
    io::stdout().write_all(scalerl_recipe::reference_page().as_bytes())
}
