//! Prompts that never repeat.
//!
//! A server that keeps what it computed for a prompt answers the next one that begins alike from its
//! cache, and its time to the first token is then no prefill. So every prompt of a launch begins with a
//! piece of its own, the rest is drawn at random, and the seed is another one in every launch.

use rand::{Rng as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use crate::cell::runner::PromptForm;

/// Common words, each with a blank before it: one token in the vocabularies of most models.
const WORDS: [&str; 64] = [
    "time",
    "people",
    "way",
    "day",
    "man",
    "thing",
    "woman",
    "life",
    "child",
    "world",
    "school",
    "state",
    "family",
    "student",
    "group",
    "country",
    "problem",
    "hand",
    "part",
    "place",
    "case",
    "week",
    "company",
    "system",
    "program",
    "question",
    "work",
    "government",
    "number",
    "night",
    "point",
    "home",
    "water",
    "room",
    "mother",
    "area",
    "money",
    "story",
    "fact",
    "month",
    "lot",
    "right",
    "study",
    "book",
    "eye",
    "job",
    "word",
    "business",
    "issue",
    "side",
    "kind",
    "head",
    "house",
    "service",
    "friend",
    "father",
    "power",
    "hour",
    "game",
    "line",
    "end",
    "member",
    "law",
    "car",
];

/// Makes the prompts of one launch.
#[derive(Debug, Clone)]
pub(super) struct PromptMaker {
    form: PromptForm,
    seed: u64,
}

impl PromptMaker {
    pub(super) fn new(form: PromptForm, seed: u64) -> PromptMaker {
        PromptMaker { form, seed }
    }

    /// The prompt with this number, of so many units: token ids, or words. The same number with more
    /// units only gets longer.
    pub(super) fn make(&self, number: u64, units: u64) -> Value {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(number);
        // Steps that share no factor with the count of choices visit each once before any again.
        let own =
            |choices: u64, step: u64| (self.seed % choices + number % choices * step) % choices;
        match &self.form {
            PromptForm::TokenIds { first, last } => {
                let choices = u64::from(last - first) + 1;
                let ids = (0..units).map(|at| match at {
                    0 => first + own(choices, 1) as u32,
                    _ => rng.random_range(*first..=*last),
                });
                Value::from(ids.collect::<Vec<u32>>())
            }
            PromptForm::Text { .. } => {
                let count = WORDS.len() as u64;
                let mut text = String::new();
                for at in 0..units {
                    let word = match at {
                        0 => own(count, 5) as usize,
                        _ => rng.random_range(0..WORDS.len()),
                    };
                    text.push(' ');
                    text.push_str(WORDS[word]);
                }
                Value::from(text)
            }
        }
    }
}

/// The next number of units to try, after so many units gave so many tokens each; `None` where no prompt
/// can be that short, because what the server adds is longer.
///
/// Tokens are taken to grow with units along a line. One try is not enough to know it: at first the
/// server is taken to add some tokens to units of one token each or, where that leaves nothing, units to
/// be more tokens than one.
pub(super) fn correct_units(tries: &[(u64, u64)], target: u64) -> Option<u64> {
    let &(units, tokens) = tries.last()?;
    let [units, tokens, target] = [units, tokens, target].map(|count| count as f64);
    let before = tries.iter().rev().map(|&(units, tokens)| (units as f64, tokens as f64));
    let slope = before
        .map(|(other, its)| (tokens - its) / (units - other))
        .find(|slope| slope.is_finite() && *slope > 0.0);
    let along = |slope: f64| (units + (target - tokens) / slope).round();
    let next = match slope {
        Some(slope) => along(slope),
        None if tokens >= units && along(1.0) >= 1.0 => along(1.0),
        None => (units * target / tokens.max(1.0)).round(),
    };
    (next >= 1.0).then_some(next as u64)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const IDS: PromptForm = PromptForm::TokenIds { first: 1000, last: 30_000 };
    const TEXT: PromptForm = PromptForm::Text { tokenize: None };

    #[test]
    fn no_two_prompts_begin_alike() {
        for seed in [0, 7, u64::MAX] {
            let ids = PromptMaker::new(IDS, seed);
            let firsts: HashSet<u64> =
                (0..500).map(|number| ids.make(number, 3)[0].as_u64().unwrap()).collect();
            assert_eq!(firsts.len(), 500);
            assert!(firsts.iter().all(|id| (1000..=30_000).contains(id)));
            let text = PromptMaker::new(TEXT, seed);
            let firsts: HashSet<String> =
                (0..64).map(|number| text.make(number, 1).as_str().unwrap().to_owned()).collect();
            assert_eq!(firsts.len(), 64);
        }
        let maker = |seed| PromptMaker::new(TEXT, seed).make(0, 20);
        assert_ne!(maker(1), maker(2));
        assert_eq!(maker(1), maker(1));
    }

    #[test]
    fn a_longer_prompt_goes_on_where_a_shorter_one_ends() {
        let maker = PromptMaker::new(TEXT, 3);
        let (short, long) = (maker.make(4, 10), maker.make(4, 11));
        assert!(long.as_str().unwrap().starts_with(short.as_str().unwrap()));
        assert_eq!(short.as_str().unwrap().split_whitespace().count(), 10);
        assert_eq!(PromptMaker::new(IDS, 3).make(4, 10).as_array().unwrap().len(), 10);
    }

    #[test]
    fn the_length_is_corrected_by_what_the_server_adds_or_by_its_ratio() {
        assert_eq!(correct_units(&[(512, 513)], 512), Some(511));
        assert_eq!(correct_units(&[(128, 158)], 128), Some(98));
        assert_eq!(correct_units(&[(512, 1024)], 512), Some(256));
        assert_eq!(correct_units(&[(512, 256)], 512), Some(1024));
        // Two tokens a unit, and six that the server adds.
        assert_eq!(correct_units(&[(512, 1030), (254, 514)], 512), Some(253));
        // The server adds 70.
        assert_eq!(correct_units(&[(64, 134)], 64), Some(31));
        assert_eq!(correct_units(&[(64, 134), (31, 101)], 64), None);
        assert_eq!(correct_units(&[], 64), None);
    }
}
