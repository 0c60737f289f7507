//! A figure as PNG: its SVG, drawn with a font that comes with the program.
//!
//! A machine that trains models often has no fonts at all, so a subset of DejaVu Sans (Latin,
//! Greek, Cyrillic, the symbols of axes; `fonts/`) is part of the binary and the only font used:
//! the same figure gives the same pixels everywhere. Other scripts appear as empty boxes in PNGs;
//! in SVG files and reports the viewer's fonts draw them.

use std::sync::{Arc, OnceLock};

use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::{Options, Tree, fontdb};

use crate::chart::Figure;
use crate::layout::Size;
use crate::save::DrawError;

const FONT: &[u8] = include_bytes!("../fonts/DejaVuSans.subset.ttf");
const BOLD_FONT: &[u8] = include_bytes!("../fonts/DejaVuSans-Bold.subset.ttf");
/// Larger pictures are refused: memory grows with the square.
const MOST_PIXELS: f64 = 20_000.0;

/// Draws a figure as PNG, `scale` pixels to each unit of `size` (2 for sharp screens and print).
pub fn png(figure: &Figure, size: Size, scale: f64) -> Result<Vec<u8>, DrawError> {
    let svg = crate::svg::svg(figure, size);
    let options =
        Options { font_family: "DejaVu Sans".to_owned(), fontdb: fonts(), ..Options::default() };
    let tree = Tree::from_str(&svg, &options)
        .map_err(|error| DrawError::Raster { reason: error.to_string() })?;
    let (width, height) = (
        (f64::from(tree.size().width()) * scale).round(),
        (f64::from(tree.size().height()) * scale).round(),
    );
    let drawable = |length: f64| (1.0..=MOST_PIXELS).contains(&length);
    if !(drawable(width) && drawable(height)) {
        return Err(DrawError::BadSize { width, height });
    }
    let mut pixels =
        Pixmap::new(width as u32, height as u32).ok_or(DrawError::BadSize { width, height })?;
    let transform = Transform::from_scale(scale as f32, scale as f32);
    resvg::render(&tree, transform, &mut pixels.as_mut());
    pixels.encode_png().map_err(|error| DrawError::Raster { reason: error.to_string() })
}

fn fonts() -> Arc<fontdb::Database> {
    static FONTS: OnceLock<Arc<fontdb::Database>> = OnceLock::new();
    let load = || {
        let mut fonts = fontdb::Database::new();
        fonts.load_font_data(FONT.to_vec());
        fonts.load_font_data(BOLD_FONT.to_vec());
        fonts.set_sans_serif_family("DejaVu Sans");
        Arc::new(fonts)
    };
    FONTS.get_or_init(load).clone()
}
