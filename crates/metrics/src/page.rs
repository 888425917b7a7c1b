//! The text for Prometheus (exposition format 0.0.4).

use std::fmt::{Display, Write as _};

use crate::{CLASS_ENDS_US, Histogram};

/// Labels of one sample: names and values.
pub type Labels<'a> = &'a [(&'a str, &'a dyn Display)];

/// The text in the making.
#[derive(Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a family of samples, of a kind: `counter`, `gauge` or `histogram`.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.put(format_args!("# HELP {name} {help}\n# TYPE {name} {kind}\n"));
    }

    /// A sample of the family that was begun last.
    pub fn sample(&mut self, name: &str, labels: Labels<'_>, value: impl Display) {
        self.put(format_args!("{name}"));
        self.put_labels(labels, None);
        self.put(format_args!(" {value}\n"));
    }

    /// A family of one sample without labels.
    pub fn single(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.family(name, kind, help);
        self.sample(name, &[], value);
    }

    /// The samples of a histogram, of the family that was begun last; none if nothing was counted.
    pub fn histogram(&mut self, name: &str, labels: Labels<'_>, histogram: &Histogram) {
        let within = histogram.within();
        let count = within[CLASS_ENDS_US.len()];
        if count == 0 {
            return;
        }
        for (end, within) in CLASS_ENDS_US.iter().zip(within) {
            let end = *end as f64 / 1e6;
            self.put(format_args!("{name}_bucket"));
            self.put_labels(labels, Some(&end));
            self.put(format_args!(" {within}\n"));
        }
        self.put(format_args!("{name}_bucket"));
        self.put_labels(labels, Some(&"+Inf"));
        self.put(format_args!(" {count}\n"));
        self.sample(&format!("{name}_sum"), labels, histogram.time().as_secs_f64());
        self.sample(&format!("{name}_count"), labels, count);
    }

    /// The text.
    pub fn into_text(self) -> String {
        self.0
    }

    fn put_labels(&mut self, labels: Labels<'_>, end: Option<&dyn Display>) {
        let end = end.map(|end| ("le", end));
        let all = labels.iter().copied().chain(end);
        let mut opening = "{";
        for (label, text) in all {
            self.put(format_args!("{opening}{label}=\"{}\"", escaped(&text.to_string())));
            opening = ",";
        }
        if opening == "," {
            self.put(format_args!("}}"));
        }
    }

    fn put(&mut self, text: std::fmt::Arguments<'_>) {
        // Writing to a string can't fail.
        let _ = self.0.write_fmt(text);
    }
}

/// The value of a label, as the format has it.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn labels_are_escaped() {
        let mut page = Page::default();
        page.sample("name", &[("label", &"a\"b\\c\nd"), ("other", &1)], 2);
        assert_eq!(page.into_text(), "name{label=\"a\\\"b\\\\c\\nd\",other=\"1\"} 2\n");
    }

    #[test]
    fn a_histogram_has_its_classes_its_sum_and_its_count() {
        let (mut page, histogram) = (Page::default(), Histogram::default());
        page.histogram("times", &[], &histogram);
        histogram.count(Duration::from_micros(20));
        page.histogram("times", &[("operation", &"read")], &histogram);
        let text = page.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 14);
        assert_eq!(lines[1], "times_bucket{operation=\"read\",le=\"0.000016\"} 0");
        assert_eq!(lines[2], "times_bucket{operation=\"read\",le=\"0.000064\"} 1");
        assert_eq!(lines[11], "times_bucket{operation=\"read\",le=\"+Inf\"} 1");
        assert_eq!(lines[12], "times_sum{operation=\"read\"} 0.00002");
        assert_eq!(lines[13], "times_count{operation=\"read\"} 1");
    }
}
