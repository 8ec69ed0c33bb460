//! What `cargo xtask prereg new` writes: a document that explains itself.

pub(crate) fn render_template(name: &str) -> String {
    TEMPLATE.replace("NAME", name)
}

const TEMPLATE: &str = include_str!("template.toml");
