//! The known word most like the one that was typed.

/// Edits (insert, delete, replace, swap neighbours) that lead from one word to the other.
fn distance(a: &str, b: &str) -> usize {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    let mut rows = vec![(0..=b.len()).collect::<Vec<_>>()];
    for i in 1..=a.len() {
        let mut row = vec![i];
        for j in 1..=b.len() {
            let replaced = rows[i - 1][j - 1] + usize::from(a[i - 1] != b[j - 1]);
            let mut best = replaced.min(rows[i - 1][j] + 1).min(row[j - 1] + 1);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(rows[i - 2][j - 2] + 1);
            }
            row.push(best);
        }
        rows.push(row);
    }
    rows[a.len()][b.len()]
}

/// The nearest of `known`, if it is near enough that a slip of the finger explains it.
pub(crate) fn nearest<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    let plain = |word: &str| word.to_lowercase().replace('-', "_");
    let typed = plain(typed);
    known
        .into_iter()
        .map(|word| (distance(&typed, &plain(word)), word))
        .filter(|(edits, word)| *edits <= 1 + word.len() / 4)
        .min_by_key(|(edits, _)| *edits)
        .map(|(_, word)| word)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_is_understood_and_a_stranger_is_not() {
        let known = ["temperature", "top_p", "top_k"];
        assert_eq!(nearest("temprature", known), Some("temperature"));
        assert_eq!(nearest("top-p", known), Some("top_p"));
        assert_eq!(nearest("pto_p", known), Some("top_p"));
        assert_eq!(nearest("entropy", known), None);
    }
}
