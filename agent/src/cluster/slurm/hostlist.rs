//! Names in the short form of Slurm: `n[1-3,07],login`. One list stands for many nodes, so the
//! number of names has a bound.

/// Longest number of a range, in digits.
const DIGITS: usize = 9;

/// Returns the names of a list; `None` for a list with another form, or with more than `most` names.
pub(super) fn expand(list: &str, most: usize) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for item in split(list)? {
        let left = most.checked_sub(names.len())?;
        names.extend(expand_item(item, left)?);
    }
    Some(names)
}

/// Splits at the commas outside of brackets.
fn split(list: &str) -> Option<Vec<&str>> {
    let (mut items, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, byte) in list.bytes().enumerate() {
        match byte {
            b'[' if !inside => inside = true,
            b']' if inside => inside = false,
            b'[' | b']' => return None,
            b',' if !inside => {
                items.push(list.get(start..at)?);
                start = at + 1;
            }
            _ => {}
        }
    }
    items.push(list.get(start..)?);
    (!inside).then_some(items)
}

fn expand_item(item: &str, most: usize) -> Option<Vec<String>> {
    let plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
    if item.is_empty() || !plain(item) || most == 0 {
        return None;
    }
    let (mut names, mut rest) = (vec![String::new()], item);
    while let Some((literal, after)) = rest.split_once('[') {
        let (ranges, after) = after.split_once(']')?;
        let numbers = expand_ranges(ranges, most)?;
        if names.len().saturating_mul(numbers.len()) > most {
            return None;
        }
        let with_numbers = |name: &String| {
            let name = format!("{name}{literal}");
            let numbers = numbers.iter();
            numbers
                .map(|number| format!("{name}{number}"))
                .collect::<Vec<_>>()
        };
        names = names.iter().flat_map(with_numbers).collect();
        rest = after;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Some(names)
}

/// Returns the numbers of `1-3,07`. Each number keeps the width of the first number of its range.
fn expand_ranges(ranges: &str, most: usize) -> Option<Vec<String>> {
    let mut numbers = Vec::new();
    for range in ranges.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (low, high) = (parse(first)?, parse(last)?);
        let more = high.checked_sub(low)?.checked_add(1)?;
        if numbers.len().saturating_add(more) > most {
            return None;
        }
        let width = first.len();
        numbers.extend((low..=high).map(|number| format!("{number:0width$}")));
    }
    Some(numbers)
}

fn parse(number: &str) -> Option<usize> {
    let is_number =
        (1..=DIGITS).contains(&number.len()) && number.bytes().all(|byte| byte.is_ascii_digit());
    number.parse().ok().filter(|_| is_number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_list_is_written_out() {
        let names = |list: &str| expand(list, 20).map(|names| names.join(" "));
        for (list, written) in [
            ("n4", "n4"),
            ("n[1-3]", "n1 n2 n3"),
            ("n[10,12]", "n10 n12"),
            ("n[08-10],login,gpu[1]-ib", "n08 n09 n10 login gpu1-ib"),
            ("r[1-2]n[1-2]", "r1n1 r1n2 r2n1 r2n2"),
        ] {
            assert_eq!(names(list).as_deref(), Some(written), "{list}");
        }
    }

    #[test]
    fn another_form_and_too_many_names_are_refused() {
        let wrong = [
            "",
            ",",
            "n1,",
            "n[1-3",
            "n1]",
            "n[[1]]",
            "n[]",
            "n[3-1]",
            "n[a-b]",
            "n[1-]",
            "n[-3]",
            "n[+1-3]",
            "n 1",
            "n\u{1}",
            "n[1-9999999999]",
            "n[1-999999999]",
            "n[1-9]m[1-9]",
        ];
        for list in wrong {
            assert_eq!(expand(list, 20), None, "{list:?}");
        }
        assert_eq!(expand("a,b,c", 2), None);
    }
}
