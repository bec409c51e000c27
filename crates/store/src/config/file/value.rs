//! The values of keys, each as what it must be.

use std::collections::BTreeMap;
use std::path::PathBuf;

use mainstay_http_core::headers::is_token;
use mainstay_protocol::limits::Limit;
use mainstay_protocol::tier::Tier;
use mainstay_report::Report;

use super::super::quantity;
use super::super::serving::{self, User};
use super::mistake::{SWITCH, TABLE, TEXT, TEXTS, leave_out};
use super::{Reader, Table, Value};
use crate::config::target::Target;

impl Reader<'_> {
    pub(super) fn quantity<L>(
        &self,
        limit: &Limit<L>,
        value: &Value<'_>,
        name: &str,
    ) -> Result<u64, Report> {
        let text = match (value.get_ref().as_str(), value.get_ref().as_integer()) {
            (Some(text), _) => text,
            (None, Some(number)) if number.radix() == 10 => number.as_str(),
            (None, _) => return Err(self.wrong_type(value, name, "a text or a number")),
        };
        quantity::parse(limit, text).map_err(|problem| {
            let built_in = quantity::show(limit.unit, limit.default);
            self.mistake(&value.span(), format!("`{name}`: {problem}"))
                .hint(leave_out(name, &built_in))
        })
    }

    pub(super) fn users(&self, value: &Value<'_>) -> Result<Vec<User>, Report> {
        let Some(list) = value.get_ref().as_array() else {
            return Err(self.wrong_type(value, "allow_user", "a list of ids or texts"));
        };
        let read = |one: &Value<'_>| {
            let text = match (one.get_ref().as_str(), one.get_ref().as_integer()) {
                (Some(text), _) => text,
                (None, Some(number)) if number.radix() == 10 => number.as_str(),
                (None, _) => return Err(self.wrong_type(one, "allow_user", "an id or a text")),
            };
            serving::user(text)
                .map_err(|problem| self.mistake(&one.span(), format!("`allow_user`: {problem}")))
        };
        list.iter().map(read).collect()
    }

    pub(super) fn tier(&self, value: &Value<'_>, name: &str) -> Result<Tier, Report> {
        self.string(value, name)?.parse().map_err(|problem| {
            self.mistake(&value.span(), format!("`{name}`: {problem}"))
                .hint("`mainstay doctor` shows which tiers this machine has")
        })
    }

    pub(super) fn boolean(&self, value: &Value<'_>, name: &str) -> Result<bool, Report> {
        let read = value.get_ref().as_bool();
        read.ok_or_else(|| self.wrong_type(value, name, SWITCH))
    }

    /// Paths that may be relative: to the directory of the server, which is not known here.
    pub(super) fn watched(&self, value: &Value<'_>) -> Result<Vec<PathBuf>, Report> {
        let texts = self.strings(value, "watch")?;
        if texts.iter().any(String::is_empty) {
            return Err(self.mistake(&value.span(), "`watch` has an empty path"));
        }
        Ok(texts.iter().map(|text| self.at_home(text)).collect())
    }

    pub(super) fn absolute(&self, value: &Value<'_>, name: &str) -> Result<PathBuf, Report> {
        let text = self.string(value, name)?;
        let path = self.at_home(&text);
        if path.is_absolute() {
            return Ok(path);
        }
        Err(self
            .mistake(
                &value.span(),
                format!("`{name}` is not an absolute path: `{text}`"),
            )
            .hint("begin it with `/` or `~/`"))
    }

    /// A path, with `~` for the home directory.
    pub(super) fn at_home(&self, text: &str) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None if text == "~" => self.home.into(),
            None => PathBuf::from(text),
        }
    }

    pub(super) fn url(&self, value: &Value<'_>) -> Result<String, Report> {
        let url = self.string(value, "url")?;
        match Target::parse(&url) {
            Ok(_) => Ok(url),
            Err(why) => Err(self.mistake(&value.span(), format!("`url` cannot be used: {why}"))),
        }
    }

    pub(super) fn variables(&self, value: &Value<'_>) -> Result<BTreeMap<String, String>, Report> {
        let will_do = |name: &str| !name.is_empty() && !name.contains(['=', '\0']);
        self.texts(value, "env", "variable", will_do)
    }

    pub(super) fn headers(
        &self,
        value: &Value<'_>,
        key: &str,
    ) -> Result<BTreeMap<String, String>, Report> {
        self.texts(value, key, "header", is_token)
    }

    /// Texts by name, as long as each name will do; no message of ours repeats a text.
    fn texts(
        &self,
        value: &Value<'_>,
        key: &str,
        whose: &str,
        will_do: impl Fn(&str) -> bool,
    ) -> Result<BTreeMap<String, String>, Report> {
        let mut texts = BTreeMap::new();
        for (name, value) in self.table(value, key)? {
            let word = name.get_ref();
            if !will_do(word) {
                let problem = format!("`{word}` cannot be the name of a {whose}");
                return Err(self.mistake(&name.span(), problem));
            }
            texts.insert(word.to_string(), self.string(value, word)?);
        }
        Ok(texts)
    }

    pub(super) fn strings(&self, value: &Value<'_>, name: &str) -> Result<Vec<String>, Report> {
        let Some(list) = value.get_ref().as_array() else {
            return Err(self.wrong_type(value, name, TEXTS));
        };
        let read = |one: &Value<'_>| match one.get_ref().as_str() {
            Some(_) => self.string(one, name),
            None => Err(self.wrong_type(one, name, TEXT).hint(format!(
                "write each text in quotes, as in `{name} = [\"…\"]`"
            ))),
        };
        list.iter().map(read).collect()
    }

    pub(super) fn string(&self, value: &Value<'_>, name: &str) -> Result<String, Report> {
        match value.get_ref().as_str() {
            Some(text) if text.contains('\0') => Err(self.mistake(
                &value.span(),
                format!("`{name}` has a zero byte, which no process can be given"),
            )),
            Some(text) => Ok(text.into()),
            None => Err(self.wrong_type(value, name, TEXT)),
        }
    }

    pub(super) fn table<'v, 't>(
        &self,
        value: &'v Value<'t>,
        name: &str,
    ) -> Result<&'v Table<'t>, Report> {
        value
            .get_ref()
            .as_table()
            .ok_or_else(|| self.wrong_type(value, name, TABLE))
    }
}
