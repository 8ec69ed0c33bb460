//! What one event of a stream says, and what an error's body says. Pure.

use serde_json::Value;

/// Text of an error that is kept.
const MESSAGE_LIMIT_CHARS: usize = 4000;

/// What one event says.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Event {
    /// The stream is over.
    Done,
    Piece(Piece),
    /// The server gave up in mid-stream.
    Failed {
        status: Option<u16>,
        message: String,
    },
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Piece {
    /// Whether there is text in it.
    pub(super) has_text: bool,
    pub(super) finish_reason: Option<String>,
    pub(super) usage: Option<Usage>,
}

/// Tokens, as the server counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Usage {
    pub(super) prompt_tokens: Option<u64>,
    pub(super) generated_tokens: Option<u64>,
    pub(super) cached_tokens: Option<u64>,
}

/// Reads the data of one event of either form: `text` of a completion, `delta` of a chat.
///
/// # Errors
/// When it is neither JSON nor `[DONE]`.
pub(super) fn parse_event(data: &str) -> Result<Event, String> {
    if data.trim() == "[DONE]" {
        return Ok(Event::Done);
    }
    let shown = || data.chars().take(100).collect::<String>().escape_debug().to_string();
    let value: Value = serde_json::from_str(data)
        .map_err(|error| format!("the stream holds `{}`, which is not JSON: {error}", shown()))?;
    if !value.is_object() {
        return Err(format!("the stream holds `{}`, which is not an object", shown()));
    }
    if let Some(error) = value.get("error").filter(|error| !error.is_null()) {
        let status = error.get("code").or(error.get("status")).and_then(Value::as_u64);
        return Ok(Event::Failed {
            status: status.and_then(|status| u16::try_from(status).ok()),
            message: find_message(&value).unwrap_or_else(|| error.to_string()),
        });
    }
    let choices = value.get("choices").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let is_text =
        |value: Option<&Value>| value.and_then(Value::as_str).is_some_and(|text| !text.is_empty());
    let has_text = choices.iter().any(|choice| {
        is_text(choice.get("text"))
            || choice.get("delta").is_some_and(|delta| {
                // Models that think aloud stream that under names of their own.
                ["content", "reasoning_content", "reasoning"]
                    .iter()
                    .any(|name| is_text(delta.get(name)))
            })
    });
    let finish_reason = choices
        .iter()
        .find_map(|choice| choice.get("finish_reason").and_then(Value::as_str))
        .map(str::to_owned);
    let usage = value.get("usage").filter(|usage| usage.is_object()).map(|usage| Usage {
        prompt_tokens: usage.get("prompt_tokens").and_then(Value::as_u64),
        generated_tokens: usage.get("completion_tokens").and_then(Value::as_u64),
        cached_tokens: usage
            .pointer("/prompt_tokens_details/cached_tokens")
            .and_then(Value::as_u64),
    });
    Ok(Event::Piece(Piece { has_text, finish_reason, usage }))
}

/// The message in the body of an error: `error.message`, `error`, `message` or `detail` of an object,
/// else the body as it stands.
pub(super) fn parse_error_body(body: &str) -> String {
    let message = serde_json::from_str::<Value>(body).ok().and_then(|value| find_message(&value));
    let message = message.unwrap_or_else(|| body.trim().to_owned());
    message.chars().take(MESSAGE_LIMIT_CHARS).collect()
}

fn find_message(value: &Value) -> Option<String> {
    let places = ["/error/message", "/error", "/message", "/detail", "/detail/0/msg"];
    places.iter().find_map(|place| value.pointer(place)?.as_str()).map(str::to_owned)
}

/// The lines of an error as evidence of why a request failed; none where it says nothing but that
/// something did.
///
/// The server's refusal (4xx) always names a cause of its own. What comes with 5xx counts if it says
/// more than the status does.
pub(super) fn evidence_of(status: Option<u16>, message: &str) -> Vec<String> {
    let is_mere_status = message.trim().is_empty()
        || ["internal server error", "service unavailable", "bad gateway", "internal error"]
            .contains(&message.trim().trim_end_matches('.').to_lowercase().as_str());
    let is_refusal = status.is_some_and(|status| (400..500).contains(&status));
    if is_mere_status && !is_refusal {
        return Vec::new();
    }
    let mut lines = message.lines().map(str::trim_end).filter(|line| !line.is_empty());
    let first = match lines.next() {
        Some(first) => format!("error: {first}"),
        None => "error: the request was refused".to_owned(),
    };
    std::iter::once(first).chain(lines.map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(data: &str) -> Piece {
        match parse_event(data).unwrap() {
            Event::Piece(piece) => piece,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn both_forms_are_read() {
        // As llama-server and vLLM send them.
        assert!(piece(r#"{"choices":[{"text":" a","index":0,"finish_reason":null}]}"#).has_text);
        assert!(piece(r#"{"choices":[{"delta":{"content":"a"}}]}"#).has_text);
        assert!(piece(r#"{"choices":[{"delta":{"reasoning_content":"a"}}]}"#).has_text);
        let role = piece(r#"{"choices":[{"delta":{"role":"assistant","content":""}}]}"#);
        assert_eq!(role, Piece::default());
        let end = piece(r#"{"choices":[{"delta":{},"finish_reason":"length"}],"usage":null}"#);
        assert_eq!((end.finish_reason.as_deref(), end.usage), (Some("length"), None));
        let usage = piece(
            r#"{"choices":[],"usage":{"prompt_tokens":512,"completion_tokens":32,"total_tokens":544,
            "prompt_tokens_details":{"cached_tokens":3}}}"#,
        );
        let expected =
            Usage { prompt_tokens: Some(512), generated_tokens: Some(32), cached_tokens: Some(3) };
        assert_eq!(usage.usage, Some(expected));
        assert_eq!(parse_event(" [DONE]").unwrap(), Event::Done);
    }

    #[test]
    fn what_is_no_event_is_shown() {
        let error = parse_event("<html>busy</html>").unwrap_err();
        assert!(error.starts_with("the stream holds `<html>busy</html>`, which is not JSON"));
        assert!(parse_event("[1]").unwrap_err().contains("not an object"));
    }

    #[test]
    fn errors_are_found_wherever_servers_put_them() {
        let in_stream = r#"{"error":{"code":500,"message":"out of memory","type":"server_error"}}"#;
        let Event::Failed { status, message } = parse_event(in_stream).unwrap() else { panic!() };
        assert_eq!((status, message.as_str()), (Some(500), "out of memory"));
        for (body, message) in [
            (in_stream, "out of memory"),
            (r#"{"error":"no such model"}"#, "no such model"),
            (r#"{"detail":"Not Found"}"#, "Not Found"),
            (r#"{"detail":[{"msg":"field required","loc":["body"]}]}"#, "field required"),
            (r#"{"object":"error","message":"too long","code":400}"#, "too long"),
            ("plain text\n", "plain text"),
            (r#"{"x":1}"#, r#"{"x":1}"#),
        ] {
            assert_eq!(parse_error_body(body), message);
        }
    }

    #[test]
    fn a_status_in_words_is_no_evidence() {
        assert!(evidence_of(Some(500), "Internal Server Error").is_empty());
        assert!(evidence_of(None, " ").is_empty());
        assert_eq!(evidence_of(Some(400), ""), ["error: the request was refused"]);
        assert_eq!(
            evidence_of(Some(500), "CUDA out of memory.\n\n  at x"),
            ["error: CUDA out of memory.", "  at x"]
        );
    }
}
