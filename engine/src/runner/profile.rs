//! The profile lines that harnesses parse.

use std::time::Duration;

use crate::decode::Generated;

/// Renders the four lines. Tokens are those of one sequence, rates those of all together; a batch of
/// several has a fifth line with the rate of each. Without a decode step there is no `Decode:` line: what was not measured
/// is missing, not 0.
pub(super) fn render(prompt_tokens: usize, generated: &Generated) -> String {
    let sequences = generated.sequences();
    let mut lines = format!(
        "Prompt tokens: {prompt_tokens}\nGenerated tokens: {}\nPrefill: {}",
        generated.tokens.len(),
        render_rate(prompt_tokens * sequences, generated.prefill),
    );
    if !generated.steps.is_empty() {
        let (steps, time) = (generated.steps.len(), generated.steps.iter().sum::<Duration>());
        lines += &format!("\nDecode: {}", render_rate(steps * sequences, time));
        if sequences > 1 {
            let each = steps as f64 / time.as_secs_f64();
            lines += &format!("\nBatch: {sequences} sequences, each {each:.2} tok/s");
        }
    }
    lines
}

fn render_rate(tokens: usize, time: Duration) -> String {
    let seconds = time.as_secs_f64();
    format!("{:.2} ms ({:.2} tok/s)", seconds * 1e3, tokens as f64 / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_are_those_that_harnesses_parse() {
        let mut generated = Generated {
            tokens: vec![1, 2, 3],
            others: Vec::new(),
            prefill: Duration::from_millis(250),
            steps: vec![Duration::from_millis(15), Duration::from_millis(25)],
        };
        assert_eq!(
            render(512, &generated),
            "Prompt tokens: 512\nGenerated tokens: 3\nPrefill: 250.00 ms (2048.00 tok/s)\n\
             Decode: 40.00 ms (50.00 tok/s)"
        );
        generated.others = vec![vec![4, 5, 6]];
        assert_eq!(
            render(512, &generated),
            "Prompt tokens: 512\nGenerated tokens: 3\nPrefill: 250.00 ms (4096.00 tok/s)\n\
             Decode: 40.00 ms (100.00 tok/s)\nBatch: 2 sequences, each 50.00 tok/s"
        );
        generated.steps.clear();
        assert!(!render(512, &generated).contains("Decode"));
    }
}
