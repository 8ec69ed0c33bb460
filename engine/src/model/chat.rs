//! Renders a chat with the template that the model brings.
//!
//! Templates are written for Jinja with what `apply_chat_template` of transformers adds to it: the
//! tags `generation`, `break` and `continue`, the functions `raise_exception` and `strftime_now`, and
//! the methods of Python's strings and dictionaries.

use std::fmt::Write as _;

use anyhow::Context as _;
use chrono::NaiveDateTime;
use minijinja::value::Value;
use minijinja::{Environment, Error, ErrorKind, context};

use super::tokenizer::TextCodec;

/// Instructions that a template may take: a thousand times what the longest known ones do, so that one
/// that never ends is an error after a moment.
const FUEL: u64 = 20_000_000;

/// Renders one question of a user, ready for the model's answer. `now` is for templates that write the
/// date.
///
/// # Errors
/// The model has no chat template, or the template fails.
pub fn render_question(
    codec: &TextCodec,
    question: &str,
    now: NaiveDateTime,
) -> anyhow::Result<String> {
    let template = codec
        .chat_template
        .as_deref()
        .context("the model has no chat template (`tokenizer.chat_template`)")?;
    render(template, question, &codec.bos_text, &codec.eos_text, now)
        .context("the model's chat template fails")
}

fn render(
    template: &str,
    question: &str,
    bos: &str,
    eos: &str,
    now: NaiveDateTime,
) -> Result<String, Error> {
    let mut environment = Environment::new();
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.set_fuel(Some(FUEL));
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", move |format: &str| -> Result<String, Error> {
        let mut text = String::new();
        // Formatting fails where the format is not one.
        write!(text, "{}", now.format(format)).map_err(|_| {
            let what = format!("`{format}` is not a format of dates");
            Error::new(ErrorKind::InvalidOperation, what)
        })?;
        Ok(text)
    });
    // As in Jinja: none is not iterable. Templates tell by it whether there are tools.
    environment.add_test("iterable", |value: &Value| {
        !value.is_none() && !value.is_undefined() && value.try_iter().is_ok()
    });
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.render_str(
        &without_generation(template),
        context! {
            messages => [context! { role => "user", content => question }],
            tools => Value::from(()),
            documents => Value::from(()),
            add_generation_prompt => true,
            bos_token => bos,
            eos_token => eos,
        },
    )
}

/// Turns the tags `generation` and `endgeneration`, which mark the model's part for training, into
/// ones that do nothing.
fn without_generation(template: &str) -> String {
    let mut out = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(start) = rest.find("{%") {
        let Some(length) = rest[start..].find("%}") else { break };
        let tag = &rest[start..start + length + 2];
        let inner =
            tag[2..tag.len() - 2].trim_start_matches(['-', '+']).trim_end_matches(['-', '+']);
        out.push_str(&rest[..start]);
        match inner.trim() {
            word @ ("generation" | "endgeneration") => {
                let instead = if word == "generation" { "if true" } else { "endif" };
                out.push_str(&tag.replacen(word, instead, 1));
            }
            _ => out.push_str(tag),
        }
        rest = &rest[start + length + 2..];
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn render_plain(template: &str) -> Result<String, Error> {
        let day = chrono::NaiveDate::from_ymd_opt(2024, 7, 26).unwrap();
        render(template, "  Why? ", "<s>", "</s>", day.and_hms_opt(9, 5, 0).unwrap())
    }

    #[test]
    fn a_template_sees_the_message_and_the_generation_prompt() {
        let template = "{{ bos_token }}{% for message in messages %}\n\
                        {% if message['role'].startswith('u') %}\n\
                        <{{ message['role'] }}>{{ message['content'].strip() }}\n\
                        {% endif %}\n\
                        {% endfor %}\n\
                        {% if add_generation_prompt %}<assistant>{% endif %}";
        assert_eq!(render_plain(template).unwrap(), "<s><user>Why?\n<assistant>");
    }

    #[test]
    fn a_template_may_refuse() {
        let error = render_plain("{{ raise_exception('no system role') }}").unwrap_err();
        assert!(error.to_string().contains("no system role"), "{error}");
    }

    /// What templates of published models use beyond Jinja itself.
    #[test]
    fn what_transformers_adds_to_jinja_is_there() {
        for (template, expected) in [
            ("{{ strftime_now('%d %b %Y') }}", "26 Jul 2024"),
            ("{{ strftime_now('%-d %B, %H:%M') }}", "26 July, 09:05"),
            ("a{%- generation -%} b {%- endgeneration -%}c", "abc"),
            ("a{% generation %}b{% endgeneration %}c", "abc"),
            (
                "{% for x in [1, 2, 3] %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}",
                "1",
            ),
            (
                "{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
                "13",
            ),
            ("{{ messages[0].get('role') }}{{ messages[0].get('name', 'x') }}", "userx"),
            ("{{ 'a-b'.replace('-', '+') }}", "a+b"),
            ("{{ '{}, {}'.format('a', 1) }}", "a, 1"),
            ("{% if tools is none %}none{% endif %}{% if tools %}some{% endif %}", "none"),
            ("{% if tools is defined and tools is not none %}some{% endif %}", ""),
            ("{{ 'a b c'.split(' ')[-1] }}{{ ' x '.rstrip() }}", "c x"),
            ("{{ tools | tojson }}", "null"),
            ("{{ tools is iterable and tools | length > 0 }}", "False"),
            ("{{ messages is iterable and 'a' is iterable }}", "True"),
            ("{% for k, v in messages[0].items() %}{{ k }} {% endfor %}", "role content "),
            ("{{ namespace(x=1).x }}", "1"),
        ] {
            let rendered = render_plain(template).map_err(|error| format!("{template}: {error}"));
            assert_eq!(rendered.unwrap(), expected, "{template}");
        }
        let error = render_plain("{{ strftime_now('%Q!') }}").unwrap_err();
        assert!(error.to_string().contains("`%Q!` is not a format of dates"), "{error}");
    }

    #[test]
    fn a_template_that_never_ends_runs_out_of_fuel() {
        let endless =
            "{% for x in range(100000) %}{% for y in range(100000) %}{% endfor %}{% endfor %}";
        let error = render_plain(endless).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutOfFuel);
    }

    /// Over a folder of templates, such as `models/templates` of llama.cpp: which fail. Firefunction's
    /// wants a variable of its own, `datetime`. Runs where `ARC_CHAT_TEMPLATES` names a folder.
    #[test]
    #[allow(clippy::print_stdout, reason = "tests show what they measured")]
    fn templates_of_a_folder_render() {
        let Some(folder) = std::env::var_os("ARC_CHAT_TEMPLATES") else {
            println!("skipped: ARC_CHAT_TEMPLATES is not set");
            return;
        };
        let mut failed = Vec::new();
        let mut count = 0;
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "jinja") {
                continue;
            }
            count += 1;
            let template = std::fs::read_to_string(&path).unwrap();
            let own = path.to_string_lossy().contains("firefunction");
            if let Err(error) = render_plain(&template)
                && !own
            {
                failed.push(format!("{}: {error:#}", path.display()));
            }
        }
        println!("{} of {count} fail", failed.len());
        assert!(failed.is_empty(), "{}", failed.join("\n"));
    }
}
