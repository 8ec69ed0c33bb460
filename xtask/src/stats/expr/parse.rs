//! Text to expression. It knows the grammar and nothing of what names mean.

use super::{Expr, Operator, Relation};

/// Parses an expression: a number or a condition; which of the two is for the type check to say.
///
/// # Errors
///
/// Says what was expected and the column (from 1) at which it was not found.
pub(crate) fn parse_condition(text: &str) -> Result<Expr, String> {
    let mut parser = Parser { tokens: tokenize(text)?, at: 0, depth: 0 };
    let expr = parser.or()?;
    match parser.tokens.get(parser.at) {
        None => Ok(expr),
        Some(token) => {
            Err(format!("unexpected `{}` in `{text}` at column {}", token.text, token.column))
        }
    }
}

/// Parses a constant such as `1e-3`, `5 %` or `-2`.
///
/// # Errors
///
/// Says what is there instead of a constant.
pub(crate) fn parse_number(text: &str) -> Result<f64, String> {
    let constant = parse_condition(text)?.constant();
    constant.map(|(value, _)| value).ok_or_else(|| format!("`{text}` is not a constant"))
}

/// How deep brackets, `not` and `-` may nest: far more than a reader can follow, far less than the
/// stack can hold.
const MAX_DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq)]
enum TokenKind {
    Number(f64),
    Name,
    Sign,
}

#[derive(Debug, Clone, PartialEq)]
struct Token {
    kind: TokenKind,
    text: String,
    column: usize,
}

const SIGNS: [&str; 15] =
    [">=", "<=", "==", "!=", "&&", "||", ">", "<", "+", "-", "*", "/", "(", ")", ","];

/// What is written for an operator by mistake, and the operator; looked for before [`SIGNS`].
const MISTAKES: [(&str, &str); 6] =
    [("=>", ">="), ("=<", "<="), ("<>", "!="), ("≥", ">="), ("≤", "<="), ("≠", "!=")];

fn tokenize(text: &str) -> Result<Vec<Token>, String> {
    let is_inner = |c: char| c.is_alphanumeric() || c == '_' || c == '.';
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let column = text[..text.len() - rest.len()].chars().count() + 1;
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            continue;
        }
        if let Some((mistake, sign)) = MISTAKES.iter().find(|(text, _)| rest.starts_with(text)) {
            return Err(format!(
                "`{mistake}` at column {column} is not an operator; did you mean `{sign}`?"
            ));
        }
        let (kind, length) = if first.is_ascii_digit() || first == '.' {
            let length = number_length(rest);
            let word = rest.find(|c: char| !is_inner(c)).unwrap_or(rest.len()).max(length);
            let value: f64 = rest[..word].parse().map_err(|_| {
                let hint = if word > length { ": numbers have no unit" } else { "" };
                format!("`{}` at column {column} is not a number{hint}", &rest[..word])
            })?;
            if !value.is_finite() {
                return Err(format!("`{}` at column {column} is too large", &rest[..length]));
            }
            (TokenKind::Number(value), length)
        } else if first.is_alphabetic() || first == '_' {
            let length = rest.find(|c| !is_inner(c)).unwrap_or(rest.len());
            (TokenKind::Name, length)
        } else if first == '%' {
            (TokenKind::Sign, 1)
        } else if let Some(sign) = SIGNS.iter().find(|sign| rest.starts_with(**sign)) {
            (TokenKind::Sign, sign.len())
        } else if first == '=' {
            return Err(format!("`=` at column {column} is not an operator; did you mean `==`?"));
        } else {
            return Err(format!("unexpected `{first}` in `{text}` at column {column}"));
        };
        tokens.push(Token { kind, text: rest[..length].to_owned(), column });
        rest = &rest[length..];
    }
    Ok(tokens)
}

/// Bytes of the number that `text` starts with: digits, one point, an exponent.
fn number_length(text: &str) -> usize {
    let bytes = text.as_bytes();
    let digits = |mut at: usize| {
        while bytes.get(at).is_some_and(|b| b.is_ascii_digit() || *b == b'.') {
            at += 1;
        }
        at
    };
    let mantissa = digits(0);
    if !matches!(bytes.get(mantissa), Some(b'e' | b'E')) {
        return mantissa;
    }
    let signed = mantissa + 1 + usize::from(matches!(bytes.get(mantissa + 1), Some(b'+' | b'-')));
    match digits(signed) {
        end if end > signed => end,
        _ => mantissa,
    }
}

struct Parser {
    tokens: Vec<Token>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<&str> {
        self.tokens.get(self.at).map(|token| token.text.as_str())
    }

    fn take(&mut self, texts: &[&str]) -> bool {
        let found = self.peek().is_some_and(|text| texts.contains(&text));
        if found {
            self.at += 1;
        }
        found
    }

    fn expected(&self, what: &str) -> String {
        match self.tokens.get(self.at) {
            Some(token) => {
                format!("expected {what} at column {}, found `{}`", token.column, token.text)
            }
            None => format!("expected {what} at the end"),
        }
    }

    fn deeper<T>(
        &mut self,
        parse: impl FnOnce(&mut Self) -> Result<T, String>,
    ) -> Result<T, String> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("nested more than {MAX_DEPTH} deep"));
        }
        let result = parse(self);
        self.depth -= 1;
        result
    }

    fn or(&mut self) -> Result<Expr, String> {
        let mut left = self.and()?;
        while self.take(&["or", "||"]) {
            left = Expr::Or(Box::new(left), Box::new(self.and()?));
        }
        Ok(left)
    }

    fn and(&mut self) -> Result<Expr, String> {
        let mut left = self.not()?;
        while self.take(&["and", "&&"]) {
            left = Expr::And(Box::new(left), Box::new(self.not()?));
        }
        Ok(left)
    }

    fn not(&mut self) -> Result<Expr, String> {
        if self.take(&["not"]) {
            return Ok(Expr::Not(Box::new(self.deeper(Parser::not)?)));
        }
        self.comparison()
    }

    fn comparison(&mut self) -> Result<Expr, String> {
        let left = self.sum()?;
        let relation = match self.peek() {
            Some(">=") => Relation::AtLeast,
            Some("<=") => Relation::AtMost,
            Some(">") => Relation::Above,
            Some("<") => Relation::Below,
            Some("==") => Relation::Equal,
            Some("!=") => Relation::Unequal,
            _ => return Ok(left),
        };
        self.at += 1;
        Ok(Expr::Compare(Box::new(left), relation, Box::new(self.sum()?)))
    }

    fn sum(&mut self) -> Result<Expr, String> {
        let mut left = self.product()?;
        loop {
            let operator = match self.peek() {
                Some("+") => Operator::Add,
                Some("-") => Operator::Subtract,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Arithmetic(Box::new(left), operator, Box::new(self.product()?));
        }
    }

    fn product(&mut self) -> Result<Expr, String> {
        let mut left = self.factor()?;
        loop {
            let operator = match self.peek() {
                Some("*") => Operator::Multiply,
                Some("/") => Operator::Divide,
                _ => return Ok(left),
            };
            self.at += 1;
            left = Expr::Arithmetic(Box::new(left), operator, Box::new(self.factor()?));
        }
    }

    fn factor(&mut self) -> Result<Expr, String> {
        if self.take(&["-"]) {
            return Ok(Expr::Negate(Box::new(self.deeper(Parser::factor)?)));
        }
        if self.take(&["+"]) {
            return self.deeper(Parser::factor);
        }
        if self.take(&["("]) {
            let inner = self.deeper(Parser::or)?;
            return if self.take(&[")"]) { Ok(inner) } else { Err(self.expected("`)`")) };
        }
        let Some(token) = self.tokens.get(self.at).cloned() else {
            return Err(self.expected("a number or a name"));
        };
        match token.kind {
            TokenKind::Number(value) => {
                self.at += 1;
                let percent = self.take(&["%"]);
                Ok(Expr::Number { value: if percent { value / 100.0 } else { value }, percent })
            }
            TokenKind::Name if ["and", "or", "not"].contains(&token.text.as_str()) => {
                Err(self.expected("a number or a name"))
            }
            TokenKind::Name => {
                self.at += 1;
                if self.take(&["("]) { self.call(token.text) } else { Ok(plain_name(token.text)) }
            }
            TokenKind::Sign => Err(self.expected("a number or a name")),
        }
    }

    fn call(&mut self, function: String) -> Result<Expr, String> {
        let mut args = Vec::new();
        loop {
            match self.tokens.get(self.at) {
                Some(Token { kind: TokenKind::Name, text, .. }) => args.push(text.clone()),
                _ => return Err(self.expected("a name")),
            }
            self.at += 1;
            if self.take(&[")"]) {
                return Ok(Expr::Call(function, args));
            }
            if !self.take(&[","]) {
                return Err(self.expected("`,` or `)`"));
            }
        }
    }
}

/// `always` and `never` are conditions; every other plain name is a number's.
fn plain_name(name: String) -> Expr {
    match name.as_str() {
        "always" => Expr::Constant(true),
        "never" => Expr::Constant(false),
        _ => Expr::Name(name),
    }
}
