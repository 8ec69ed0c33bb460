//! Renders a chat with the template that the model brings.

use anyhow::Context as _;
use minijinja::value::{Value, from_args};
use minijinja::{Environment, Error, ErrorKind, context};

use super::tokenizer::TextCodec;

/// Renders one question of a user, ready for the model's answer.
///
/// # Errors
/// The model has no chat template, or the template fails.
pub fn render_question(codec: &TextCodec, question: &str) -> anyhow::Result<String> {
    let template = codec
        .chat_template
        .as_deref()
        .context("the model has no chat template (`tokenizer.chat_template`)")?;
    render(template, question, &codec.bos_text, &codec.eos_text)
        .context("the model's chat template fails")
}

fn render(template: &str, question: &str, bos: &str, eos: &str) -> Result<String, Error> {
    let mut environment = Environment::new();
    // As the templates' authors test them: see `apply_chat_template` of transformers.
    environment.set_trim_blocks(true);
    environment.set_lstrip_blocks(true);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment
        .set_unknown_method_callback(|_, value, method, args| python_method(value, method, args));
    environment.render_str(
        template,
        context! {
            messages => [context! { role => "user", content => question }],
            add_generation_prompt => true,
            bos_token => bos,
            eos_token => eos,
        },
    )
}

/// The methods of Python's strings that chat templates call.
fn python_method(value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return Err(Error::from(ErrorKind::UnknownMethod));
    };
    match method {
        "strip" => Ok(text.trim().into()),
        "lstrip" => Ok(text.trim_start().into()),
        "rstrip" => Ok(text.trim_end().into()),
        "lower" => Ok(text.to_lowercase().into()),
        "upper" => Ok(text.to_uppercase().into()),
        "startswith" => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(text.starts_with(prefix).into())
        }
        "endswith" => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(text.ends_with(suffix).into())
        }
        "split" => {
            let (separator,): (&str,) = from_args(args)?;
            Ok(text.split(separator).map(Value::from).collect())
        }
        _ => Err(Error::from(ErrorKind::UnknownMethod)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_template_sees_the_message_and_the_generation_prompt() {
        let template = "{{ bos_token }}{% for message in messages %}\n\
                        {% if message['role'].startswith('u') %}\n\
                        <{{ message['role'] }}>{{ message['content'].strip() }}\n\
                        {% endif %}\n\
                        {% endfor %}\n\
                        {% if add_generation_prompt %}<assistant>{% endif %}";
        let text = render(template, "  Why? ", "<s>", "</s>").unwrap();
        assert_eq!(text, "<s><user>Why?\n<assistant>");
    }

    #[test]
    fn a_template_may_refuse() {
        let error = render("{{ raise_exception('no system role') }}", "x", "", "").unwrap_err();
        assert!(error.to_string().contains("no system role"), "{error}");
    }
}
