//! Markdown pages from templates, which lie beside the code that fills them.
//!
//! A template holds the words and the order; what is in a page is decided before it is rendered.

use anyhow::Context as _;
use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use crate::base::count::render_count;

/// Fills a template. A block tag leaves no line of its own.
///
/// Besides minijinja's filters there are `cell` (text that fits a table's cell), `count` (`3 launches`),
/// `fixed` (a number with so many decimals) and `number` (a number as short as it can be).
///
/// # Errors
/// When the template does not parse, or asks for what `values` lacks: never for what a user did.
pub(crate) fn render_page(template: &str, values: impl Serialize) -> anyhow::Result<String> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_keep_trailing_newline(true);
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.add_filter("cell", |text: &str| cell(text));
    environment.add_filter("count", render_count);
    environment.add_filter("fixed", |value: f64, decimals: usize| format!("{value:.decimals$}"));
    environment.add_filter("number", |value: f64| value.to_string());
    environment.render_str(template, values).context("the page's template is broken")
}

/// One line, without bars.
pub(crate) fn cell(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

#[cfg(test)]
mod tests {
    use minijinja::context;

    use super::*;

    #[test]
    fn block_tags_leave_no_line_and_nothing_is_escaped() {
        let template =
            "# {{ name }}\n\n{% for x in list %}\n| {{ x | cell }} |\n{% endfor %}\nend\n";
        let page = render_page(template, context! { name => "a < b", list => ["a\n  b | c", "d"] });
        assert_eq!(page.unwrap(), "# a < b\n\n| a b \\| c |\n| d |\nend\n");
    }

    #[test]
    fn numbers_are_as_short_or_as_long_as_asked_for() {
        let template = "{{ a | number }} {{ a | fixed(2) }} {{ 1 | count('run') }}";
        assert_eq!(render_page(template, context! { a => 15.0 }).unwrap(), "15 15.00 1 run");
    }

    #[test]
    fn what_is_not_there_is_an_error_and_no_gap() {
        assert!(render_page("{{ nothing }}", context! {}).is_err());
        assert!(render_page("{% if", context! {}).is_err());
    }
}
