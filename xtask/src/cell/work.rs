//! Whether a result can be true: the work that was asked for, done in a time that can be read, at a
//! rate that follows from both.
//!
//! Pure. What contradicts itself is a measurement of something else, so it is no row of numbers.

use super::runner::Measured;

/// How far a rate may be from tokens over time.
const RATE_SHARE: f64 = 0.02;
/// What times can tell at least, in milliseconds, where nothing says what their last digit stands for.
const RESOLUTION_MS: f64 = 0.01;
/// The resolution of rates: two decimals.
const RATE_RESOLUTION: f64 = 0.01;

/// What a cell was to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) prompt_tokens: u64,
    pub(crate) max_tokens: u64,
    /// Whether the program counts the tokens that it works on; where not, only times are checked.
    pub(crate) counts: bool,
    /// Whether the program ends by itself at an end-of-sequence token.
    pub(crate) may_stop: bool,
}

/// Whether a prompt has the length that was asked for: within 1 %, or within two tokens.
pub(crate) fn is_near(tokens: u64, target: u64) -> bool {
    tokens.abs_diff(target) <= 2.max(target / 100)
}

/// Checks numbers against what was asked for and against each other. What is missing is not checked.
///
/// # Errors
/// Why they cannot be true, in words.
pub(crate) fn check_work(measured: &Measured, asked: Asked) -> Result<(), String> {
    if let Some(tokens) = measured.prompt_tokens
        && !is_near(tokens, asked.prompt_tokens)
    {
        return Err(format!("the prompt had {tokens} tokens instead of {}", asked.prompt_tokens));
    }
    if let Some(tokens) = measured.generated_tokens
        && tokens < asked.max_tokens
        && !asked.may_stop
    {
        return Err(format!("{tokens} tokens were generated instead of {}", asked.max_tokens));
    }
    let resolution_ms = measured.resolution_ms.unwrap_or(RESOLUTION_MS);
    let prefill = Phase { name: "prefill", ms: measured.prefill_ms, tok_s: measured.prefill_tok_s };
    prefill.check(resolution_ms, measured.prompt_tokens, 0)?;
    // The first token comes out of prefill: some programs count it as decoded, some do not.
    let decode = Phase { name: "decode", ms: measured.decode_ms, tok_s: measured.decode_tok_s };
    decode.check(resolution_ms, measured.generated_tokens, 1)
}

/// What is said of a phase.
struct Phase {
    name: &'static str,
    ms: Option<f64>,
    tok_s: Option<f64>,
}

impl Phase {
    /// Checks a phase of `tokens` tokens, or of up to `fewer` less.
    fn check(&self, resolution_ms: f64, tokens: Option<u64>, fewer: u64) -> Result<(), String> {
        let (name, Some(ms)) = (self.name, self.ms) else { return Ok(()) };
        let decimals = (-resolution_ms.log10()).round().clamp(0.0, 9.0) as usize;
        if ms < resolution_ms && tokens.is_none_or(|tokens| tokens > fewer) {
            return Err(format!("{name} took {ms:.decimals$} ms, which is below what can be told"));
        }
        let (Some(tok_s), Some(tokens)) = (self.tok_s, tokens) else { return Ok(()) };
        // What is printed with so many decimals may be off by half of the last.
        let (half_ms, half_rate) = (resolution_ms / 2.0, RATE_RESOLUTION / 2.0);
        let fits = (tokens.saturating_sub(fewer)..=tokens).any(|tokens| {
            let computed = tokens as f64 * 1000.0 / ms;
            (tok_s - computed).abs() <= (RATE_SHARE + half_ms / ms) * computed + half_rate
        });
        if fits {
            return Ok(());
        }
        let computed = tokens as f64 * 1000.0 / ms;
        Err(format!(
            "{name}: {tokens} tokens in {ms:.decimals$} ms are {computed:.2} tok/s, but {tok_s:.2} tok/s are \
             given"
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ASKED: Asked =
        Asked { prompt_tokens: 512, max_tokens: 32, counts: true, may_stop: false };

    fn whole() -> Measured {
        Measured {
            prompt_tokens: Some(512),
            generated_tokens: Some(32),
            prefill_ms: Some(256.0),
            prefill_tok_s: Some(2000.0),
            decode_ms: Some(640.0),
            decode_tok_s: Some(50.0),
            decode_kv_tokens: None,
            resolution_ms: None,
        }
    }

    fn problem(change: impl FnOnce(&mut Measured)) -> String {
        let mut measured = whole();
        change(&mut measured);
        check_work(&measured, ASKED).err().unwrap_or_default()
    }

    #[test]
    fn the_prompt_may_be_off_by_two_tokens_or_a_hundredth() {
        // A rate that fits its count.
        let prompt = |tokens: u64, target: u64| {
            let measured = Measured {
                prompt_tokens: Some(tokens),
                prefill_tok_s: Some(tokens as f64 * 1000.0 / 256.0),
                ..whole()
            };
            check_work(&measured, Asked { prompt_tokens: target, ..ASKED }).is_ok()
        };
        for (tokens, target, holds) in [
            (512, 512, true),
            (507, 512, true),
            (506, 512, false),
            (517, 512, true),
            (518, 512, false),
            (6, 8, true),
            (5, 8, false),
            (17, 512, false),
        ] {
            assert_eq!(prompt(tokens, target), holds, "{tokens} for {target}");
        }
        assert_eq!(
            problem(|measured| measured.prompt_tokens = Some(17)),
            "the prompt had 17 tokens instead of 512"
        );
    }

    #[test]
    fn fewer_tokens_than_asked_for_are_other_work_unless_the_program_may_stop() {
        let short = Measured { generated_tokens: Some(20), decode_ms: Some(400.0), ..whole() };
        assert_eq!(
            check_work(&short, ASKED).unwrap_err(),
            "20 tokens were generated instead of 32"
        );
        assert_eq!(check_work(&short, Asked { may_stop: true, ..ASKED }), Ok(()));
    }

    #[test]
    fn rate_count_and_time_agree() {
        assert_eq!(problem(|_| ()), "");
        // The first token may count as decoded or not: 31 or 32 in 640 ms.
        assert_eq!(problem(|measured| measured.decode_tok_s = Some(48.4375)), "");
        assert_eq!(problem(|measured| measured.decode_tok_s = Some(50.9)), "");
        assert_eq!(
            problem(|measured| measured.decode_tok_s = Some(51.1)),
            "decode: 32 tokens in 640.00 ms are 50.00 tok/s, but 51.10 tok/s are given"
        );
        assert!(problem(|measured| measured.prefill_tok_s = Some(1950.0)).starts_with("prefill: "));
        assert!(problem(|measured| measured.decode_tok_s = Some(0.004)).starts_with("decode: "));
        // Rounding to two decimals explains 0.125 ms as 0.13.
        let tiny = Measured {
            prompt_tokens: Some(8),
            generated_tokens: None,
            prefill_ms: Some(0.13),
            prefill_tok_s: Some(64_000.0),
            decode_ms: None,
            ..whole()
        };
        assert_eq!(check_work(&tiny, Asked { prompt_tokens: 8, ..ASKED }), Ok(()));
    }

    #[test]
    fn a_time_that_is_no_time_is_not_measured() {
        let none = |measured: &mut Measured| {
            (measured.prefill_ms, measured.prefill_tok_s) = (Some(0.0), Some(32_000_000.0));
        };
        assert_eq!(problem(none), "prefill took 0.00 ms, which is below what can be told");
        // Nothing was decoded after the first token, so that takes no time.
        let one = Measured { generated_tokens: Some(1), decode_ms: Some(0.0), ..whole() };
        let one = Measured { decode_tok_s: None, ..one };
        assert_eq!(check_work(&one, Asked { max_tokens: 1, ..ASKED }), Ok(()));
    }

    #[test]
    fn what_is_missing_is_not_checked() {
        assert_eq!(check_work(&Measured::default(), ASKED), Ok(()));
        let rates = Measured { prefill_tok_s: Some(9.0), ..Measured::default() };
        assert_eq!(check_work(&rates, ASKED), Ok(()));
    }
    #[test]
    fn a_time_is_told_by_its_digits() {
        let (text, asked) = ("Prompt tokens: 512\nPrefill: ", ASKED);
        let check = |prefill: &str| {
            let (measured, _) =
                crate::cell::runner::parse_profile_text(&format!("{text}{prefill}"));
            check_work(&measured, asked)
        };
        assert_eq!(check("0.004 ms (128000000.00 tok/s)"), Ok(()), "four of its last digit");
        assert_eq!(check("3 ms (170000.00 tok/s)"), Ok(()), "3 may be 3.01");
        for (prefill, said) in [
            ("0.00 ms (128000000.00 tok/s)", "prefill took 0.00 ms, which"),
            ("0.000 ms (1.00 tok/s)", "prefill took 0.000 ms, which"),
            ("0 ms (1.00 tok/s)", "prefill took 0 ms, which"),
            ("3.000 ms (160000.00 tok/s)", "512 tokens in 3.000 ms are 170666.67 tok/s"),
        ] {
            let error = check(prefill).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
    }
}
