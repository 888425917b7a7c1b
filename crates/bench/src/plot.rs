//! Figures of rows that differ in a number alone, as SVG: bandwidth against how many clients there are.

use std::fmt::Write as _;

use crate::Row;

/// A drawing of some kinds of rows.
struct Figure {
    /// Name of its file, without what tells its format.
    name: &'static str,
    title: &'static str,
    /// What comes before the number in the names of its rows, and what that stands for.
    series: &'static [(&'static str, &'static str)],
}

const FIGURES: [Figure; 3] = [
    Figure {
        name: "striped-read",
        title: "Reading large files: n clients, n drives, links of 400 Mbit/s",
        series: &[
            ("scale-read-", "straight from the drives"),
            ("scale-forwarded-read-", "through the file manager"),
        ],
    },
    Figure {
        name: "striped-search",
        title: "Searching large files: n clients, n drives, links of 400 Mbit/s",
        series: &[
            ("scale-search-", "straight from the drives"),
            ("scale-forwarded-search-", "through the file manager"),
        ],
    },
    Figure {
        name: "many-clients",
        title: "One file of each client over 4 of 13 drives, links of 155 Mbit/s",
        series: &[("many-clients-", "straight from the drives")],
    },
];

/// Width and height of a drawing, and what lies around its axes: left, right, above and below.
const SIZE: (f64, f64) = (640.0, 420.0);
const MARGINS: (f64, f64, f64, f64) = (64.0, 64.0, 40.0, 56.0);
const COLOURS: [&str; 2] = ["#1f6fb4", "#c2502d"];

/// The figures that can be drawn of some rows: their file names and contents.
pub fn figures(rows: &[Row]) -> Vec<(String, String)> {
    let drawn = FIGURES.iter().filter_map(|figure| {
        let series: Vec<Series<'_>> =
            figure.series.iter().map(|(prefix, label)| Series::of(rows, prefix, label)).collect();
        let is_there = series.iter().any(|series| series.points.len() > 1);
        is_there.then(|| (format!("{}.svg", figure.name), draw(figure.title, &series)))
    });
    drawn.collect()
}

/// A line of a figure.
struct Series<'a> {
    label: &'a str,
    points: Vec<Point>,
}

struct Point {
    clients: f64,
    rate: f64,
    limit: Option<f64>,
    manager_cpu: Option<f64>,
}

impl<'a> Series<'a> {
    fn of(rows: &[Row], prefix: &str, label: &'a str) -> Series<'a> {
        let point = |row: &Row| {
            Some(Point {
                clients: row.name.strip_prefix(prefix)?.parse().ok()?,
                rate: row.value,
                limit: row.limit,
                manager_cpu: row.manager_cpu,
            })
        };
        let mut points: Vec<Point> = rows.iter().filter_map(point).collect();
        points.sort_by(|one, other| one.clients.total_cmp(&other.clients));
        Series { label, points }
    }
}

/// Places on the drawing.
struct Scale {
    most_clients: f64,
    most_rate: f64,
}

impl Scale {
    fn x(&self, clients: f64) -> f64 {
        MARGINS.0 + clients / self.most_clients * (SIZE.0 - MARGINS.0 - MARGINS.1)
    }

    fn y(&self, rate: f64) -> f64 {
        SIZE.1 - MARGINS.3 - rate / self.most_rate * (SIZE.1 - MARGINS.2 - MARGINS.3)
    }

    fn line(&self, points: impl Iterator<Item = (f64, f64)>) -> String {
        let places = points.map(|(x, y)| format!("{:.1},{:.1}", self.x(x), self.y(y)));
        places.collect::<Vec<_>>().join(" ")
    }
}

fn draw(title: &str, series: &[Series<'_>]) -> String {
    let points = || series.iter().flat_map(|series| &series.points);
    let most_clients = points().map(|point| point.clients).fold(1.0, f64::max);
    let rates = points().map(|point| point.rate.max(point.limit.unwrap_or(0.0)));
    let highest = rates.fold(1.0, f64::max);
    let step = round_step(highest / 5.0);
    let most_rate = (highest / step).ceil() * step;
    let scale = Scale { most_clients, most_rate };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"{}\" y=\"22\" font-size=\"14\">{title}</text>\n",
        SIZE.0, SIZE.1, MARGINS.0
    );
    draw_axes(&mut svg, &scale, step);
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

fn draw_axes(svg: &mut String, scale: &Scale, step: f64) {
    let (left, right) = (scale.x(0.0), scale.x(scale.most_clients));
    let mut rate = 0.0;
    while rate <= scale.most_rate + step / 2.0 {
        let y = scale.y(rate);
        let _ = writeln!(
            svg,
            "<line x1=\"{left:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{rate:.0}</text>",
            left - 6.0,
            y + 4.0
        );
        rate += step;
    }
    for clients in 0..=scale.most_clients as u32 {
        let _ = writeln!(
            svg,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{clients}</text>",
            scale.x(f64::from(clients)),
            SIZE.1 - MARGINS.3 + 18.0
        );
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">clients</text>\n\
         <text x=\"16\" y=\"{:.1}\" transform=\"rotate(-90 16 {:.1})\" text-anchor=\"middle\">MB/s of all \
         (dashed: what the links can carry)</text>",
        (left + right) / 2.0,
        SIZE.1 - 16.0,
        SIZE.1 / 2.0,
        SIZE.1 / 2.0
    );
}

/// The line, its limit, and beside each point what the managers took of a processor.
fn draw_series(svg: &mut String, scale: &Scale, series: &Series<'_>, colour: &str) {
    let rates = scale.line(series.points.iter().map(|point| (point.clients, point.rate)));
    let limits = series.points.iter().filter_map(|point| Some((point.clients, point.limit?)));
    let limits = scale.line(limits);
    let _ = writeln!(
        svg,
        "<polyline points=\"{limits}\" fill=\"none\" stroke=\"{colour}\" stroke-dasharray=\"4 4\"/>\n\
         <polyline points=\"{rates}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>"
    );
    for point in &series.points {
        let (x, y) = (scale.x(point.clients), scale.y(point.rate));
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
    if let Some(last) = series.points.last() {
        let (x, y) = (scale.x(last.clients), scale.y(last.rate));
        let _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"{colour}\">{}; managers' \
             processor</text>",
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
    fn steps_are_round() {
        let steps = [0.7, 1.0, 3.0, 51.0, 90.0].map(round_step);
        assert_eq!(steps, [1.0, 1.0, 5.0, 100.0, 100.0]);
    }
}
