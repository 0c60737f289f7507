//! What every figure must satisfy, whatever its numbers: checked on random figures through each
//! renderer, because careless charts break at odd ranges and not at the ones in examples.

#![expect(clippy::unwrap_used, reason = "a test says what failed by failing there")]

use proptest::prelude::*;
use resvg::tiny_skia::Pixmap;
use roxmltree::{Document, Node};
use scalerl_board::chart::{
    Axis, Band, Dot, Figure, Layer, Level, Line, Mark, Marks, Points, Role, Rule, Scale, Stroke,
    Tone,
};
use scalerl_board::{
    Block, DrawError, Format, Glyphs, Page, Piece, Section, Size, Table, TerminalOptions, png,
    save, svg, terminal,
};

const HOSTILE: &str = "<script>alert('x')</script> & \"quotes\" \u{1b}[31m \u{0} 漢字 ]]>";

/// A figure with one layer of each kind per run, all from a seed of random numbers.
fn figure(values: &[(f64, f64)], scales: (Scale, Scale), runs: usize) -> Figure {
    let mut layers = Vec::new();
    for index in 0..runs {
        let tone = Tone::Run(index);
        let legend = format!("run {index} {HOSTILE}");
        let shift = 1.0 + index as f64 * 0.1;
        let points: Vec<_> = values.iter().map(|(x, y)| (x * shift, y * shift)).collect();
        let bounds = points.iter().map(|(x, y)| (*x, y * 0.9, y * 1.2)).collect();
        layers.push(Layer::Band(Band { tone, legend: legend.clone(), points: bounds }));
        let stroke = Stroke::Dashed;
        layers.push(Layer::Line(Line {
            tone,
            stroke,
            legend: legend.clone(),
            points: points.clone(),
        }));
        let value = points.last().map(|point| point.1);
        let interval = Some((0.0, f64::INFINITY));
        let label = "ceiling\n0.6".to_owned();
        let level = Level { tone, value, interval, label, legend: String::new() };
        layers.push(Layer::Level(level));
        let x = points.first().map_or(f64::NAN, |point| point.0);
        layers.push(Layer::Rule(Rule { tone, x, label: HOSTILE.into() }));
        let role = [Role::Used, Role::LeftOut, Role::HeldOut, Role::Probe][index % 4];
        let dots = points.iter().map(|(x, y)| Dot { x: *x, y: *y, hover: HOSTILE.into() });
        layers.push(Layer::Points(Points { tone, role, legend, dots: dots.collect() }));
        let marks = points.iter().take(2).map(|(x, y)| Mark {
            x: *x,
            y: *y,
            low: y * 0.8,
            high: y * 1.3,
            label: "0.64 [0.62, 0.66]".into(),
            hover: HOSTILE.into(),
        });
        let marks = Marks { tone, legend: "forecast".into(), marks: marks.collect() };
        layers.push(Layer::Marks(marks));
    }
    Figure {
        title: HOSTILE.into(),
        subtitle: "A subtitle that is long enough to be wrapped on a narrow canvas, twice".into(),
        x: Axis { label: "compute".into(), scale: scales.0, range: None },
        y: Axis { label: "pass rate".into(), scale: scales.1, range: None },
        layers,
    }
}

fn number(node: Node, name: &str) -> f64 {
    node.attribute(name).unwrap().parse().unwrap()
}

fn has_class(node: Node, class: &str) -> bool {
    node.attribute("class").is_some_and(|classes| classes.split(' ').any(|name| name == class))
}

fn place(node: Node) -> (f64, f64) {
    let text = node.attribute("transform").unwrap();
    let inner = text.trim_start_matches("translate(").trim_end_matches(')');
    let (x, y) = inner.split_once(',').unwrap();
    (x.parse().unwrap(), y.parse().unwrap())
}

/// Well-formed, every point inside the plot, ticks in order, distinct and on the canvas.
fn check(text: &str) {
    let document = Document::parse(text).unwrap();
    let root = document.root_element();
    let plot = root.children().find(|node| node.has_tag_name("svg")).unwrap();
    let (left, top) = (number(plot, "x"), number(plot, "y"));
    let (right, bottom) = (left + number(plot, "width"), top + number(plot, "height"));
    let (width, height) = (number(root, "width"), number(root, "height"));
    assert!(left >= 0.0 && top >= 0.0 && right <= width && bottom <= height);
    assert!(right - left > 60.0 && bottom - top > 50.0, "a plot of no use");

    for node in root.descendants().filter(|node| has_class(*node, "tip")) {
        let (x, y) = place(node);
        let inside =
            (left - 0.1..=right + 0.1).contains(&x) && (top - 0.1..=bottom + 0.1).contains(&y);
        assert!(inside, "point at {x}, {y} outside the plot");
    }
    for (class, axis, sign) in [("x-tick", "x", 1.0), ("y-tick", "y", -1.0)] {
        let ticks: Vec<_> = root.descendants().filter(|node| has_class(*node, class)).collect();
        assert!(!ticks.is_empty());
        for pair in ticks.windows(2) {
            assert!(sign * (number(pair[1], axis) - number(pair[0], axis)) > 8.0, "ticks crowd");
            assert_ne!(pair[0].text(), pair[1].text());
        }
    }
    for node in
        root.descendants().filter(|node| node.has_tag_name("text") && node.has_attribute("y"))
    {
        let (x, y) = (number(node, "x"), number(node, "y"));
        assert!((0.0..=width).contains(&x) && (0.0..=height + 1.0).contains(&y), "{node:?}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf,"), "a number that no reader knows");
}

fn scale() -> impl Strategy<Value = Scale> {
    prop_oneof![Just(Scale::Linear), Just(Scale::Log)]
}

/// Values over a random window of up to ten decades anywhere between 1e-6 and 1e22, with some
/// zeros, negatives, NaN and infinities among them.
fn values() -> impl Strategy<Value = Vec<(f64, f64)>> {
    let odd = prop_oneof![
        12 => Just(None),
        1 => prop_oneof![Just(0.0), Just(-1.0), Just(f64::NAN), Just(f64::INFINITY)].prop_map(Some),
    ];
    let one = (0.0..1.0f64, 0.0..1.0f64, odd);
    (-6.0..12.0f64, 0.0..10.0f64, prop::collection::vec(one, 0..12)).prop_map(
        |(low, decades, shares)| {
            let point = |(across, up, odd): (f64, f64, Option<f64>)| {
                (odd.unwrap_or(10f64.powf(low + decades * across)), up)
            };
            shares.into_iter().map(point).collect()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_figure_is_well_formed_and_keeps_its_points_inside(
        values in values(), x in scale(), y in scale(), runs in 1usize..9,
        width in 200.0..1600.0f64, height in 150.0..1000.0f64,
    ) {
        check(&svg(&figure(&values, (x, y), runs), Size { width, height }));
    }

    #[test]
    fn no_line_of_a_terminal_chart_is_wider_than_asked(
        values in values(), x in scale(), y in scale(), runs in 1usize..9,
        width in 30usize..160, height in 5usize..40, color: bool, ascii: bool,
    ) {
        let glyphs = if ascii { Glyphs::Ascii } else { Glyphs::Unicode };
        let options = TerminalOptions { width, height, color, glyphs };
        let text = terminal(&figure(&values, (x, y), runs), options);
        for line in text.lines() {
            let plain = without_colors(line);
            let columns = unicode_width::UnicodeWidthStr::width(plain.as_str());
            prop_assert!(columns <= width, "{columns} > {width}: {plain}");
            prop_assert!(!plain.chars().any(char::is_control), "{plain:?}");
            prop_assert!(color || line == plain, "colours that nobody asked for");
            prop_assert!(!ascii || plain.is_ascii(), "{plain:?}");
        }
    }
}

fn without_colors(line: &str) -> String {
    let mut pieces = line.split('\u{1b}');
    let first = pieces.next().unwrap_or_default().to_owned();
    pieces.fold(first, |text, piece| text + piece.split_once('m').unwrap().1)
}

fn sigmoid() -> Figure {
    let values: Vec<_> = (0..40)
        .map(|index| {
            let compute = 10f64.powf(f64::from(index) / 8.0);
            (compute, 0.4 + 0.3 / (1.0 + 300.0 / compute))
        })
        .collect();
    figure(&values, (Scale::Log, Scale::Linear), 2)
}

#[test]
fn a_png_has_the_size_asked_for_and_shows_text_and_colours() {
    let size = Size { width: 640.0, height: 480.0 };
    let picture = Pixmap::decode_png(&png(&sigmoid(), size, 1.5).unwrap()).unwrap();
    assert_eq!((picture.width(), picture.height()), (960, 720));
    let is_close = |pixel: &resvg::tiny_skia::PremultipliedColorU8, (r, g, b): (u8, u8, u8)| {
        pixel.red().abs_diff(r) < 12
            && pixel.green().abs_diff(g) < 12
            && pixel.blue().abs_diff(b) < 12
    };
    let share = |color| {
        let hits = picture.pixels().iter().filter(|pixel| is_close(pixel, color)).count();
        hits as f64 / picture.pixels().len() as f64
    };
    assert!(share((0, 0x72, 0xb2)) > 0.0005, "points of the first run");
    assert!(share((0xff, 0xff, 0xff)) > 0.3, "ground");
    // Without a font there would be no dark pixels in the title.
    let title = picture.pixels().iter().take(960 * 45);
    assert!(title.filter(|pixel| is_close(pixel, (0x1b, 0x1f, 0x24))).count() > 300, "title");
}

#[test]
fn a_picture_of_absurd_size_is_refused_with_a_hint() {
    let error = png(&sigmoid(), Size::WIDE, 1e4).unwrap_err();
    assert!(matches!(error, DrawError::BadSize { .. }));
    assert!(error.hint().contains("20000"));
}

#[test]
fn a_name_without_a_known_ending_is_refused() {
    let error = Format::of("plot.pdf".as_ref()).unwrap_err();
    assert!(error.to_string().contains("plot.pdf") && error.hint().contains(".svg"));
    assert_eq!(Format::of("A/B.PNG".as_ref()).unwrap(), Format::Png);
    let missing = save(&sigmoid(), Size::WIDE, "no/such/folder/plot.svg".as_ref()).unwrap_err();
    assert!(missing.to_string().contains("no/such/folder/plot.svg"));
}

#[test]
fn a_terminal_chart_shows_points_curve_ceiling_and_ticks() {
    let mut figure = sigmoid();
    figure.title = "Pass rate".into();
    let text = terminal(&figure, TerminalOptions::default());
    for sign in ['●', '★', '╌', '┊', '┤', '┬'] {
        assert!(text.contains(sign), "{sign} is missing:\n{text}");
    }
    assert!(text.chars().any(|sign| ('\u{2801}'..='\u{28ff}').contains(&sign)), "no curve");
    assert!(text.contains("10k") && text.starts_with("Pass rate\n"));
}

fn page() -> Page {
    let hostile = || HOSTILE.to_owned();
    Page {
        title: hostile(),
        subtitle: hostile(),
        sections: (0..5)
            .map(|_| Section {
                heading: hostile(),
                blocks: vec![
                    Block::Headlines(vec![hostile()]),
                    Block::Prose(hostile()),
                    Block::Table(Table {
                        caption: hostile(),
                        columns: vec![hostile()],
                        rows: vec![vec![hostile()]],
                    }),
                    Block::Figure(Box::new(sigmoid()), hostile()),
                    Block::KeyValues(vec![(hostile(), hostile())]),
                    Block::Gallery(vec![sigmoid()]),
                    Block::Passage(vec![
                        Piece { text: hostile(), mark: None },
                        Piece { text: hostile(), mark: Some(hostile()) },
                    ]),
                    Block::Fold(hostile(), vec![Block::Code(hostile())]),
                ],
            })
            .collect(),
    }
}

#[test]
fn a_page_runs_no_script_but_its_own_and_needs_nothing_from_outside() {
    let html = page().html();
    assert_eq!(html.matches("<script").count(), 1);
    assert!(html.contains("&lt;script&gt;alert(&#39;x&#39;)"));
    let outside = html.replace("xmlns=\"http://www.w3.org/2000/svg\"", "");
    for reference in ["http://", "https://", "src=", "url(", "@import", "<link"] {
        assert!(!outside.contains(reference), "{reference}");
    }
    assert!(html.contains("width=device-width") && html.contains("prefers-color-scheme: dark"));
}

#[test]
fn every_tag_of_a_page_is_closed() {
    let html = page().html();
    let (from, until) = (html.find("<main>").unwrap(), html.find("</main>").unwrap());
    let body = Document::parse(&html[from..until + "</main>".len()]).unwrap();
    let marks = body.descendants().filter(|node| node.has_tag_name("mark"));
    let texts: Vec<_> = marks.map(|mark| mark.text().unwrap().to_owned()).collect();
    assert_eq!(texts.len(), 5);
    assert!(texts.iter().all(|text| text.starts_with("<script>alert('x')")), "{texts:?}");
}

#[test]
fn figures_of_a_page_are_drawn_for_wide_and_for_narrow_screens_small_ones_once_for_both() {
    let html = page().html();
    assert_eq!(html.matches("<figure class=\"chart\"").count(), 5 + 5);
    let drawings: Vec<_> = html.match_indices("<svg xmlns").collect();
    assert_eq!(drawings.len(), 10 + 5);
    for (start, _) in drawings {
        // The drawing ends at the second closing tag: the plot is a nested one.
        let end = html[start..].match_indices("</svg>").nth(1).unwrap().0;
        check(&html[start..start + end + "</svg>".len()]);
    }
}
