//! No circles: the modules of `engine/src/cuda` and of the stand-in driver are layers, so that each
//! can be read, and tested, with what is below it alone.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use syn::visit::{self, Visit};

/// The module's path from the crate's root, `["cuda", "hooks"]`; empty for the root.
type Module = Vec<String>;
type Edges = BTreeMap<Module, BTreeSet<Module>>;

fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap()
}

/// The files of modules at or below `folder`, with the module that each is.
fn find_modules(folder: &Path, module: &Module) -> Vec<(Module, PathBuf)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let mut own = module.clone();
        if name != "lib" {
            own.push(name.to_owned());
        }
        if path.is_dir() {
            found.extend(find_modules(&path, &own));
        } else if path.extension().is_some_and(|extension| extension == "rs") && name != "tests" {
            found.push((own, path));
        }
    }
    found
}

/// Collects the modules that one file names.
struct Names<'a> {
    known: &'a BTreeSet<Module>,
    file: &'a Module,
    /// Inline modules within the file, from the outermost.
    inline: Vec<String>,
    named: BTreeSet<Module>,
}

impl Names<'_> {
    /// Notes what a path leads to: the longest part of it that is a module. A path without `crate`,
    /// `self` or `super` counts where it starts with a submodule of the file.
    fn note(&mut self, path: &[String]) {
        let mut base: Module = self.file.iter().chain(&self.inline).cloned().collect();
        let mut rest = path;
        match path.first().map(String::as_str) {
            Some("crate") => {
                base.clear();
                rest = &rest[1..];
            }
            Some("self" | "super") => {
                while let Some((first, more)) = rest.split_first() {
                    match first.as_str() {
                        "self" => {}
                        "super" => drop(base.pop()),
                        _ => break,
                    }
                    rest = more;
                }
            }
            Some(first) if self.known.contains(&[self.file, &[first.to_owned()][..]].concat()) => {}
            _ => return,
        }
        base.extend(rest.iter().cloned());
        while !self.known.contains(&base) {
            if base.pop().is_none() {
                return;
            }
        }
        if base != *self.file {
            self.named.insert(base);
        }
    }

    fn note_use(&mut self, before: &[String], tree: &syn::UseTree) {
        let with = |ident: &syn::Ident| [before, &[ident.to_string()]].concat();
        match tree {
            syn::UseTree::Path(path) => self.note_use(&with(&path.ident), &path.tree),
            syn::UseTree::Name(name) => self.note(&with(&name.ident)),
            syn::UseTree::Rename(name) => self.note(&with(&name.ident)),
            syn::UseTree::Glob(_) => self.note(before),
            syn::UseTree::Group(group) => {
                group.items.iter().for_each(|tree| self.note_use(before, tree));
            }
        }
    }
}

fn is_for_tests(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        attribute.path().is_ident("cfg")
            && attribute.parse_args::<syn::Path>().is_ok_and(|path| path.is_ident("test"))
    })
}

impl<'ast> Visit<'ast> for Names<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if is_for_tests(&item.attrs) {
            return;
        }
        self.inline.push(item.ident.to_string());
        visit::visit_item_mod(self, item);
        self.inline.pop();
    }

    fn visit_item_use(&mut self, item: &'ast syn::ItemUse) {
        self.note_use(&[], &item.tree);
    }

    /// `pub(super)` names nobody.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    fn visit_path(&mut self, path: &'ast syn::Path) {
        let segments: Vec<String> = path.segments.iter().map(|s| s.ident.to_string()).collect();
        self.note(&segments);
        visit::visit_path(self, path);
    }

    /// What a macro is given is tokens: only paths from the crate's root can be told there.
    fn visit_macro(&mut self, called: &'ast syn::Macro) {
        self.note_tokens(&called.tokens.to_string());
    }

    fn visit_item_macro(&mut self, item: &'ast syn::ItemMacro) {
        self.note_tokens(&item.mac.tokens.to_string());
    }
}

impl Names<'_> {
    fn note_tokens(&mut self, tokens: &str) {
        for after in tokens.split("crate :: ").skip(1) {
            let path = after.split(" :: ").map(|word| {
                word.split(|c: char| !c.is_alphanumeric() && c != '_').next().unwrap_or_default()
            });
            let path: Vec<String> =
                std::iter::once("crate").chain(path).map(str::to_owned).collect();
            self.note(&path);
        }
    }
}

fn read_edges(files: &[(Module, PathBuf)]) -> Edges {
    let known: BTreeSet<Module> = files.iter().map(|(module, _)| module.clone()).collect();
    let mut edges = Edges::new();
    for (module, path) in files {
        let text = std::fs::read_to_string(path).unwrap();
        let file = syn::parse_file(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        let mut names =
            Names { known: &known, file: module, inline: Vec::new(), named: BTreeSet::new() };
        names.visit_file(&file);
        edges.insert(module.clone(), names.named);
    }
    edges
}

/// Removes what names nothing that is left, until only circles and what names them remain, then the
/// same from above. What is left is within a circle, or between two.
fn find_circles(mut edges: Edges) -> Vec<String> {
    loop {
        let before = edges.len();
        let left: BTreeSet<Module> = edges.keys().cloned().collect();
        edges.retain(|_, to| to.iter().any(|module| left.contains(module)));
        let named: BTreeSet<Module> = edges.values().flatten().cloned().collect();
        edges.retain(|module, _| named.contains(module));
        if edges.len() == before {
            break;
        }
    }
    let inside: BTreeSet<Module> = edges.keys().cloned().collect();
    edges
        .iter()
        .flat_map(|(from, to)| to.intersection(&inside).map(move |to| (from, to)))
        .map(|(from, to)| format!("{} → {}", from.join("::"), to.join("::")))
        .collect()
}

#[test]
fn the_cuda_modules_are_layers() {
    let source = workspace().join("engine/src");
    let cuda = vec!["cuda".to_owned()];
    let mut files = find_modules(&source.join("cuda"), &cuda);
    files.push((cuda.clone(), source.join("cuda.rs")));
    let runner = vec!["runner".to_owned()];
    files.push((runner.clone(), source.join("runner.rs")));
    let mut edges = read_edges(&files);
    // Its files open the device and install the cache.
    edges.insert(runner, BTreeSet::from([cuda.clone()]));
    let hooks = [&cuda[..], &["hooks".to_owned()]].concat();
    assert!(edges[&cuda].len() > 3 && edges[&hooks].len() > 3, "the walk is broken: {edges:?}");
    assert_eq!(find_circles(edges), Vec::<String>::new());
}

#[test]
fn the_stand_ins_modules_are_layers() {
    let edges = read_edges(&find_modules(&workspace().join("cuda-standin/src"), &Module::new()));
    assert!(edges[&vec!["memory".to_owned()]].len() > 3, "the walk is broken: {edges:?}");
    assert_eq!(find_circles(edges), Vec::<String>::new());
}

#[test]
fn a_circle_is_found_and_a_chain_is_not() {
    let edges = |pairs: &[(&str, &str)]| -> Edges {
        let mut edges = Edges::new();
        for (from, to) in pairs {
            edges.entry(vec![(*to).to_owned()]).or_default();
            edges.entry(vec![(*from).to_owned()]).or_default().insert(vec![(*to).to_owned()]);
        }
        edges
    };
    assert!(find_circles(edges(&[("a", "b"), ("b", "c"), ("a", "c")])).is_empty());
    let circle = find_circles(edges(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d")]));
    assert_eq!(circle, ["b → c", "c → b"]);
}
