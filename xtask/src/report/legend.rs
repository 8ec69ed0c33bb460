//! What marks mean: a colour and a sentence for each class.

use serde::Serialize;

/// How a class is drawn and explained.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(super) struct ClassStyle {
    /// The CSS class of its colour.
    pub(super) css: &'static str,
    /// Whether cells of the class were launched, unless the journal says otherwise.
    pub(super) launched: bool,
    pub(super) meaning: &'static str,
}

/// How a measured cell is drawn.
pub(super) const MEASURED: ClassStyle = style("ran", true, "");

/// What the ring around a point of a measured cell means.
pub(super) const DISTURBED: ClassStyle =
    style("key", true, "measured while something else held it up");

/// The known classes, in the order of the legend.
const KNOWN: [(&str, ClassStyle); 10] = [
    ("SKIP:oom", style("oom", true, "launched, and ran out of memory")),
    ("SKIP:oom_backstop", style("backstop", false, "not launched: a shorter prompt ran out")),
    ("SKIP:oom_record", style("record", false, "not launched: the OOM record holds it")),
    ("SKIP:oom_estimate", style("estimate", false, "not launched: the weights are too large")),
    ("FAIL:bench", style("bench", true, "failed for another reason")),
    ("FAIL:timeout", style("timeout", true, "took too long")),
    ("FAIL:no_output", style("output", true, "left no result")),
    ("FAIL:wrong_work", style("work", true, "did other work than was asked for")),
    ("FAIL:missing_model", style("missing", false, "not launched: no such model")),
    ("FAIL:host_lost", style("lost", true, "the host was lost while it ran")),
];

const fn style(css: &'static str, launched: bool, meaning: &'static str) -> ClassStyle {
    ClassStyle { css, launched, meaning }
}

/// The place of a class in the legend, and how it is drawn. Classes that are not known come last.
pub(super) fn style_of(class: &str) -> (usize, ClassStyle) {
    KNOWN
        .iter()
        .position(|(known, _)| *known == class)
        .map(|index| (index, KNOWN[index].1))
        .unwrap_or((KNOWN.len(), style("other", !class.starts_with("SKIP:"), "not measured")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cell::classify::Classification;

    #[test]
    fn every_class_has_a_colour_and_a_sentence_of_its_own() {
        let mut colours: Vec<_> = KNOWN.iter().map(|(_, style)| style.css).collect();
        let mut sentences: Vec<_> = KNOWN.iter().map(|(_, style)| style.meaning).collect();
        for class in Classification::ALL {
            let (place, style) = style_of(class.token());
            assert!(place < KNOWN.len(), "no style for {class}");
            assert_eq!(style.launched, class_is_launched(class), "{class}");
        }
        for list in [&mut colours, &mut sentences] {
            list.sort_unstable();
            list.dedup();
            assert_eq!(list.len(), KNOWN.len());
        }
        assert_eq!(style_of("SKIP:later").1.css, "other");
    }

    /// As docs/FORMATS.md has it.
    fn class_is_launched(class: Classification) -> bool {
        !matches!(
            class,
            Classification::OomBackstop
                | Classification::OomRecord
                | Classification::OomEstimate
                | Classification::FailMissingModel
        )
    }
}
