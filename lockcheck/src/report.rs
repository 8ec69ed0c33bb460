//! Reports for people, for programs and for CI annotations. It renders; it prints nothing.

mod github;
mod human;
mod json;

pub use github::render_github;
pub use human::render_human;
pub use json::render_json;

fn verdict(agrees: bool) -> &'static str {
    if agrees { "agree" } else { "disagree" }
}
