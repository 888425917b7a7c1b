//! Figures of rows that differ in a number alone, as SVG: what was measured against that number.

use std::fmt::Write as _;

use crate::Row;

/// A drawing of some kinds of rows.
struct Figure {
    /// Name of its file, without what tells its format.
    name: &'static str,
    title: &'static str,
    axes: Axes,
    /// What comes before and behind the number in the names of its rows, and what that stands for.
    series: &'static [(&'static str, &'static str, &'static str)],
}

/// What a drawing's axes are.
#[derive(Clone, Copy)]
struct Axes {
    number: &'static str,
    value: &'static str,
    /// Values begin at 1, and as far as from 1 to 2 it is from 2 to 4.
    has_logarithmic_values: bool,
    /// The same of the numbers.
    has_logarithmic_numbers: bool,
}

const CLIENTS: Axes = Axes {
    number: "clients",
    value: "MB/s of all (dashed: what the links can carry)",
    has_logarithmic_values: false,
    has_logarithmic_numbers: false,
};

const PAIRS_RATE: Axes = Axes { number: "pairs of client and drive", ..CLIENTS };

const PAIRS_TIME: Axes = Axes {
    number: "pairs of client and drive",
    value: "seconds, in the mean of the clients (dashed: of one pair alone)",
    has_logarithmic_values: false,
    has_logarithmic_numbers: false,
};

const SIZES: Axes = Axes {
    number: "MB of a file",
    value: "MB/s from its open to its last byte (dashed: of one of 1 GB)",
    has_logarithmic_values: false,
    has_logarithmic_numbers: true,
};

const SELECTED: Axes = Axes {
    number: "% of the records selected",
    value: "times as fast as reading (dashed: at most)",
    has_logarithmic_values: true,
    has_logarithmic_numbers: false,
};

const FIGURES: [Figure; 9] = [
    Figure {
        name: "striped-read",
        title: "Reading large files: n clients, n drives, links of 400 Mbit/s",
        axes: CLIENTS,
        series: &[
            ("scale-read-", "", "straight from the drives"),
            ("scale-forwarded-read-", "", "through the file manager"),
        ],
    },
    Figure {
        name: "striped-search",
        title: "Searching large files: n clients, n drives, links of 400 Mbit/s",
        axes: CLIENTS,
        series: &[
            ("scale-search-", "", "straight from the drives"),
            ("scale-forwarded-search-", "", "through the file manager"),
        ],
    },
    Figure {
        name: "many-clients",
        title: "One file of each client over 4 of 13 drives, links of 155 Mbit/s",
        axes: CLIENTS,
        series: &[("many-clients-", "", "straight from the drives")],
    },
    Figure {
        name: "filter-select",
        title: "Filters at a drive behind a link of 1 Gbit/s",
        axes: SELECTED,
        series: &[
            ("filter-select-", "", "1 GB, records of 100 bytes"),
            ("filter-select-", "-small", "100 MB, of 20"),
            ("filter-select-", "-large", "100 MB, of 1000"),
        ],
    },
    Figure {
        name: "filter-local",
        title: "Filters at a drive of the same machine",
        axes: SELECTED,
        series: &[
            ("filter-local-", "", "1 GB, records of 100 bytes"),
            ("filter-local-", "-small", "100 MB, of 20"),
            ("filter-local-", "-large", "100 MB, of 1000"),
        ],
    },
    Figure {
        name: "bulk-sizes",
        title: "Reading short files by the bulk service, cold, one after the other",
        axes: SIZES,
        series: &[
            ("bulk-", "mb", "objects of a drive"),
            ("bulk-directory-", "mb", "files of a directory"),
        ],
    },
    Figure {
        name: "afs-read",
        title: "Raw read: a large file of each pair, links of 400 Mbit/s",
        axes: PAIRS_RATE,
        series: &[
            ("afs-scale-", "", "straight from the drives"),
            ("afs-scale-forwarded-", "", "through the file manager"),
        ],
    },
    Figure {
        name: "afs-agrep",
        title: "Searching a tree of small files of each pair, links of 400 Mbit/s",
        axes: PAIRS_TIME,
        series: &[
            ("afs-agrep-", "", "straight from the drives"),
            ("afs-agrep-forwarded-", "", "through the file manager"),
        ],
    },
    Figure {
        name: "afs-link",
        title: "Linking object files of each pair, links of 400 Mbit/s",
        axes: PAIRS_TIME,
        series: &[
            ("afs-link-", "", "straight from the drives"),
            ("afs-link-forwarded-", "", "through the file manager"),
        ],
    },
];

/// Width and height of a drawing, and what lies around its axes: left, right, above and below.
const SIZE: (f64, f64) = (640.0, 420.0);
const MARGINS: (f64, f64, f64, f64) = (64.0, 64.0, 40.0, 56.0);
const COLOURS: [&str; 3] = ["#1f6fb4", "#c2502d", "#3a8a3f"];

/// The figures that can be drawn of some rows: their file names and contents.
pub fn figures(rows: &[Row]) -> Vec<(String, String)> {
    let drawn = FIGURES.iter().filter_map(|figure| {
        let series: Vec<Series<'_>> = figure
            .series
            .iter()
            .map(|(begin, end, label)| Series::of(rows, (begin, end), label))
            .collect();
        let is_there = series.iter().any(|series| series.points.len() > 1);
        is_there.then(|| (format!("{}.svg", figure.name), draw(figure, &series)))
    });
    drawn.collect()
}

/// A line of a figure.
struct Series<'a> {
    label: &'a str,
    points: Vec<Point>,
}

struct Point {
    number: f64,
    value: f64,
    limit: Option<f64>,
    manager_cpu: Option<f64>,
}

impl<'a> Series<'a> {
    fn of(rows: &[Row], (begin, end): (&str, &str), label: &'a str) -> Series<'a> {
        let point = |row: &Row| {
            Some(Point {
                number: row.name.strip_prefix(begin)?.strip_suffix(end)?.parse().ok()?,
                value: row.value,
                limit: row.limit,
                manager_cpu: row.manager_cpu,
            })
        };
        let mut points: Vec<Point> = rows.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.number.total_cmp(&other.number));
        Series { label, points }
    }
}

/// Places on the drawing.
struct Scale {
    axes: Axes,
    most_number: f64,
    most_value: f64,
}

impl Scale {
    fn x(&self, number: f64) -> f64 {
        let part = match self.axes.has_logarithmic_numbers {
            true => number.max(1.0).ln() / self.most_number.max(2.0).ln(),
            false => number / self.most_number,
        };
        MARGINS.0 + part * (SIZE.0 - MARGINS.0 - MARGINS.1)
    }

    fn y(&self, value: f64) -> f64 {
        let part = match self.axes.has_logarithmic_values {
            // What is slower is told by the table.
            true => value.max(1.0).ln() / self.most_value.ln(),
            false => value / self.most_value,
        };
        SIZE.1 - MARGINS.3 - part * (SIZE.1 - MARGINS.2 - MARGINS.3)
    }

    fn line(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let places = points.map(|(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y)));
        places.collect::<Vec<_>>().join(" ")
    }

    /// A scale for values up to one, and those that are written beside it.
    fn up_to(axes: Axes, most_number: f64, highest: f64) -> (Scale, Vec<f64>) {
        let (most_value, ticks) = if axes.has_logarithmic_values {
            let all =
                (0..).flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10_f64.powi(power)));
            let mut ticks = Vec::new();
            for tick in all {
                ticks.push(tick);
                if tick >= highest && tick > 1.0 {
                    break;
                }
            }
            (ticks.last().copied().unwrap_or(2.0), ticks)
        } else {
            let step = round_step(highest / 5.0);
            let count = (highest / step).ceil();
            (count * step, (0..=count as u32).map(|tick| f64::from(tick) * step).collect())
        };
        (Scale { axes, most_number, most_value }, ticks)
    }
}

fn draw(figure: &Figure, series: &[Series<'_>]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let mut numbers: Vec<f64> = points().map(|point| point.number).collect();
    numbers.sort_by(f64::total_cmp);
    numbers.dedup();
    let most_number = numbers.last().map_or(1.0, |most| most.max(1.0));
    let values = points().map(|point| point.value.max(point.limit.unwrap_or(0.0)));
    let (scale, ticks) = Scale::up_to(figure.axes, most_number, values.fold(1.0, f64::max));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"22\" font-size=\"14\">{}</text>\n",
        SIZE.0, SIZE.1, MARGINS.0, figure.title
    );
    draw_axes(&mut svg, &scale, &numbers, &ticks);
    for (series, colour) in series.iter().zip(COLOURS) {
        draw_series(&mut svg, &scale, series, colour);
    }
    svg.push_str("</svg>\n");
    svg
}

/// 1, 2 or 5 times a power of ten, not below what is given.
fn round_step(least: f64) -> f64 {
    let power = 10_f64.powf(least.log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|digit| digit * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(least)
}

fn draw_axes(svg: &mut String, scale: &Scale, numbers: &[f64], ticks: &[f64]) {
    let (left, right) = (scale.x(0.0), scale.x(scale.most_number));
    let decimals = usize::from(ticks.iter().any(|tick| tick.fract() != 0.0));
    for tick in ticks {
        let y = scale.y(*tick);
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{tick:.decimals$}</text>",
            left - 6.0,
            y + 4.0
        );
    }
    for number in numbers {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{number}</text>",
            scale.x(*number),
            SIZE.1 - MARGINS.3 + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n\
         <text x=\"16\" y=\"{:.1}\" transform=\"rotate(-90 16 {:.1})\" text-anchor=\"middle\">{}</text>",
        (left + right) / 2.0,
        SIZE.1 - 16.0,
        scale.axes.number,
        SIZE.1 / 2.0,
        SIZE.1 / 2.0,
        scale.axes.value
    );
}

/// The line, its limit, and beside each point what the managers took of a processor.
fn draw_series(svg: &mut String, scale: &Scale, series: &Series<'_>, colour: &str) {
    let rates = scale.line(series.points.iter().map(|point| (point.number, point.value)));
    let limits = series.points.iter().filter_map(|point| Some((point.number, point.limit?)));
    let limits = scale.line(limits);
    let _ = writeln!(
        svg,
        "<polyline points=\"{limits}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"4 4\"/>\n\
         <polyline points=\"{rates}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
    );
    for point in &series.points {
        let (x, y) = (scale.x(point.number), scale.y(point.value));
        let share = point.manager_cpu.map_or(String::new(), |share| {
            format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{:.1} %</text>",
                x + 6.0,
                y + 16.0,
                100.0 * share
            )
        });
        let _ =
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3\" fill=\"{colour}\"/>{share}");
    }
    // Where a curve begins high there is room beside its first point.
    let place = match scale.axes.has_logarithmic_values {
        true => series.points.first().map(|point| (point, "start", 10.0)),
        false => series.points.last().map(|point| (point, "end", 0.0)),
    };
    if let Some((point, anchor, beside)) = place {
        let (x, y) = (scale.x(point.number) + beside, scale.y(point.value));
        let is_managed = series.points.iter().any(|point| point.manager_cpu.is_some());
        let besides = if is_managed { "; managers' processor" } else { "" };
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"{anchor}\" fill=\"{colour}\">{}{besides}</text>",
            y - 10.0,
            series.label
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_one_kind_are_a_figure() {
        let row = |name: &str, value| Row::new(name, value, "MB/s", 2.0 * value, "links");
        let rows = [row("scale-read-8", 380.0), row("scale-read-1", 50.0), row("create", 1.0)];
        let drawn = figures(&rows);
        let [(name, svg)] = &drawn[..] else { panic!("{} figures", drawn.len()) };
        assert_eq!(name, "striped-read.svg");
        assert_eq!(svg.matches("<circle").count(), 2);
        let rates: Vec<&str> = svg.lines().filter(|line| line.contains("stroke-width")).collect();
        // The one with fewer clients first, and lower.
        assert!(rates[0].contains("128.0,343.8 576.0,210.1"), "{}", rates[0]);
        assert!(figures(&rows[2..]).is_empty());
    }

    #[test]
    fn what_is_twice_as_fast_is_as_far_above() {
        let row = |name: &str, value| Row::new(name, value, "times", value, "at most");
        let rows = [
            row("filter-select-1", 64.0),
            row("filter-select-50", 2.0),
            row("filter-select-100", 1.0),
            row("filter-select-1-small", 8.0),
            row("filter-select-100-small", 0.9),
        ];
        let drawn = figures(&rows);
        let [(name, svg)] = &drawn[..] else { panic!("{} figures", drawn.len()) };
        assert_eq!(name, "filter-select.svg");
        assert_eq!(svg.matches("<circle").count(), 5);
        let (scale, ticks) = Scale::up_to(SELECTED, 100.0, 64.0);
        assert_eq!(ticks, [1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]);
        let far = |one, other| scale.y(one) - scale.y(other);
        assert!((far(1.0, 2.0) - far(2.0, 4.0)).abs() < 1e-9);
        assert_eq!(scale.y(0.5), scale.y(1.0));
    }

    #[test]
    fn sizes_of_any_order_are_drawn_beside_each_other() {
        let (scale, _) = Scale::up_to(SIZES, 1000.0, 2000.0);
        assert_eq!((scale.x(0.0), scale.x(1000.0)), (MARGINS.0, SIZE.0 - MARGINS.1));
        assert!((scale.x(6.0) - scale.x(3.0) - (scale.x(12.0) - scale.x(6.0))).abs() < 1e-9);
    }

    #[test]
    fn each_way_of_pairs_is_a_line_of_their_figure() {
        let row = |name: &str, value| Row::new(name, value, "s", 0.8, "one pair alone");
        let rows = [
            row("afs-link-1", 0.8),
            row("afs-link-8", 0.82),
            row("afs-link-forwarded-1", 0.7),
            row("afs-link-forwarded-8", 0.9),
        ];
        let drawn = figures(&rows);
        let [(name, svg)] = &drawn[..] else { panic!("{} figures", drawn.len()) };
        assert_eq!(name, "afs-link.svg");
        assert_eq!(svg.matches("<circle").count(), 4);
        assert_eq!(svg.matches("stroke-width").count(), 2);
        // Of less than a second there are parts.
        assert!(svg.contains(">0.2</text>") && svg.contains(">1.0</text>"), "{svg}");
    }

    #[test]
    fn steps_are_round() {
        let steps = [0.7, 1.0, 3.0, 51.0, 90.0].map(round_step);
        assert_eq!(steps, [1.0, 1.0, 5.0, 100.0, 100.0]);
    }
}
