//! Completions and episodes to read, token by token where the tokens were kept.
//!
//! Colours are classes that the style knows: nothing of a completion reaches an attribute but numbers.

use std::fmt::Write as _;

use scalerl_board::escape;
use scalerl_board::number::short;
use scalerl_journal::{Sample, SampleToken};
use scalerl_report::run::shortened;
use scalerl_rollout::FinishReason;

use crate::samples::{Found, PAGE, SampleFile, Wish};

/// Steps of the two scales.
const SHADES: f64 = 6.0;

pub(crate) fn page(found: &Found, wish: &Wish) -> String {
    let mut html = String::new();
    if found.samples.is_empty() {
        let why = if wish.text.is_empty() && wish.step.is_none() {
            "No completions were kept yet (output.sampled_completions)."
        } else {
            "Nothing was found."
        };
        let _ = write!(html, "<p class=\"quiet\">{why}</p>");
    }
    for (file, sample) in &found.samples {
        one(file, sample, &mut html);
    }
    if let Some(cut) = found.cut {
        let _ = write!(html, "<p class=\"alert\">There may be more: {cut}.</p>");
    }
    if found.broken > 0 {
        let _ = write!(html, "<p class=\"quiet\">{} lines could not be read.</p>", found.broken);
    }
    let button = |skip: usize, name: &str| {
        format!("<button type=\"button\" class=\"turn\" value=\"{skip}\">{name}</button>")
    };
    html.push_str("<div class=\"tools\">");
    if wish.skip > 0 {
        html.push_str(&button(wish.skip.saturating_sub(PAGE), "newer"));
    }
    if found.has_more {
        html.push_str(&button(wish.skip + PAGE, "older"));
    }
    html.push_str("</div>");
    html
}

fn one(file: &SampleFile, sample: &Sample, html: &mut String) {
    let verdict = match sample.reward {
        Some(reward) if reward.is_correct => "right",
        Some(_) => "wrong",
        None => "no verdict",
    };
    let class = verdict.replace(' ', "-");
    let reward = sample.reward.map_or("–".to_owned(), |reward| short(reward.value));
    let of = if file.is_training { "training" } else { "evaluation" };
    let turns =
        if sample.turns > 1 { format!(" · {} turns", sample.turns) } else { String::new() };
    let _ = write!(
        html,
        "<details class=\"sample\"><summary><span class=\"verdict {class}\">{verdict}</span> \
         <b>{}</b> <span class=\"quiet\">step {} · {of} · reward {reward} · {} tokens{turns}</span>\
         </summary>",
        escape(&sample.prompt.0),
        file.step,
        sample.tokens,
    );
    let ended = match sample.finish {
        FinishReason::Stop => "by itself",
        FinishReason::Length => "out of budget",
    };
    let mut facts = vec![("set", sample.set.clone()), ("gold answer", sample.answer.clone())];
    facts.push(("ended", ended.to_owned()));
    if let Some(error) = &sample.error {
        facts.push(("why no verdict", error.clone()));
    }
    html.push_str("<dl>");
    for (name, value) in facts {
        let _ = write!(html, "<dt>{name}</dt><dd>{}</dd>", escape(&shortened(&value)));
    }
    for (name, value) in &sample.metrics {
        let _ = write!(html, "<dt>{}</dt><dd>{}</dd>", escape(name), short(*value));
    }
    let _ = write!(
        html,
        "</dl><h3>Prompt</h3><pre class=\"passage\">\n{}</pre><h3>{}</h3>\
         <pre class=\"passage written\">\n",
        escape(&shortened(&sample.prompt_text)),
        if sample.parts.is_empty() { "Completion" } else { "Episode" },
    );
    written(sample, html);
    html.push_str("</pre></details>");
}

fn written(sample: &Sample, html: &mut String) {
    if !sample.token_list.is_empty() {
        return tokens(&sample.token_list, sample.tokens, html);
    }
    if sample.parts.is_empty() {
        html.push_str(&escape(&shortened(&sample.completion)));
    }
    for part in &sample.parts {
        let text = escape(&shortened(&part.text));
        let _ = if part.is_injected {
            write!(html, "<mark title=\"put in, not written by the model\">{text}</mark>")
        } else {
            write!(html, "{text}")
        };
    }
}

fn tokens(list: &[SampleToken], all: u64, html: &mut String) {
    let oldest = list.iter().map(|one| one.version.0).min().unwrap_or(0);
    let newest = list.iter().map(|one| one.version.0).max().unwrap_or(0);
    for token in list {
        let text = escape(&token.text);
        let version = token.version.0;
        if token.is_injected {
            let _ =
                write!(html, "<mark title=\"injected, read by version {version}\">{text}</mark>");
            continue;
        }
        // From certain to a chance below 1 in 400 (e⁻⁶).
        let unlikely = f64::from(-token.logprob).clamp(0.0, SHADES - 1.0).round();
        let age = if newest > oldest {
            ((newest - version) as f64 / (newest - oldest) as f64 * (SHADES - 1.0)).round()
        } else {
            0.0
        };
        let _ = write!(
            html,
            "<span class=\"l{unlikely} v{age}\" title=\"log-prob {:.3}, version {version}\">{text}\
             </span>",
            token.logprob
        );
    }
    if (list.len() as u64) < all {
        let _ = write!(html, "<i>… {} more tokens</i>", all - list.len() as u64);
    }
}
