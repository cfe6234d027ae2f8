//! Which passwords an attacker tries first.
//!
//! The crate zxcvbn was measured instead. It adds 2.4 MB to the executable (regex and its dictionaries), takes up to
//! 1.4 s for 100 characters, and gives `Sommer2026!` and `contraseña1` a score of 3.

use super::common::is_common;

/// The words of the most common passwords, in lower case. Digits around them or in place of letters are ignored.
const WORDS: &str = "abc access admin administrator alexander amanda america andrew android angel anna anthony \
    apple arsenal ashley asshole autumn baby babygirl bailey banana barcelona baseball basketball batman beautiful \
    berlin bitch blink bonjour boston buster butterfly canada champion change changeme charlie cheese chelsea chicago \
    chocolate coffee computer contraseña contrasena cookie corvette daniel danielle default demo diamond dragon eagle \
    elizabeth facebook family ferrari flower football forever france freedom friend friends fuckyou fussball futbol \
    geheim george germany ginger golf google guest guitar hallo hannah happy harley hello herbst hockey hola honey \
    hunter idsvc iloveu iloveyou india internet jennifer jessica jesus jonathan jordan joshua juventus kennwort killer \
    letmein liverpool login london love lovely lover loveyou madrid maggie marseille martin master matrix matthew \
    maverick mercedes merlin metallica michael michelle microsoft minecraft monday money monkey motdepasse mustang \
    naruto natasha newyork nicole nintendo ninja nothing orange paris parola pass passwd passwort password patrick \
    peanut pepper phoenix pikachu playstation pokemon porsche princesa princess purple pussy ranger realmadrid robert \
    rockyou root sakura samantha samsung schatz secret server service shadow silver soccer soleil sommer sophie \
    spiderman spring startrek starwars summer sunshine superman sweet system temp tequiero test tester thomas thunder \
    tigger trustno user victoria warrior welcome whatever willkommen windows winter wizard yamaha";

/// Characters in the order of an alphabet or a keyboard. Passwords follow them in either direction.
const ROWS: &str = "abcdefghijklmnopqrstuvwxyz 01234567890 ٠١٢٣٤٥٦٧٨٩ qwertyuiop asdfghjkl zxcvbnm qwertzuiop yxcvbnm \
    azertyuiop qsdfghjklm wxcvbn !@#$%^&*() 1qaz2wsx3edc4rfv5tgb6yhn7ujm8ik qazwsxedcrfvtgb 147258369 \
    1q2w3e4r5t6y7u8i9o0p q1w2e3r4t5 1a2b3c4d5e a1b2c3d4e5 00112233445566778899";
/// Fewer characters in a row may be chance.
const SHORTEST_ROW: usize = 3;
/// The most characters of a repeated unit.
const LONGEST_UNIT: usize = 4;
/// How many characters around a word an attacker tries: a year and a sign.
const MOST_AROUND: usize = 5;

/// Whether a password is among the first that an attacker tries: one of the most common ones, or one that
/// [the rules](is_refused_by_rules) refuse.
pub(super) fn is_guessable(password: &str, known: &[&str]) -> bool {
    let typed = password.to_lowercase();
    is_common(&typed) || is_refused_by_rules(&typed, known)
}

/// Whether a password in lower case is a repeated short unit, rows of keys, or a common word with few characters around
/// it. Texts that are `known` about the user and the service count as common words. Several words pass, because there are
/// too many combinations to try.
pub(super) fn is_refused_by_rules(typed: &str, known: &[&str]) -> bool {
    let chars: Vec<char> = typed.chars().collect();
    let length = chars.len();
    let repeats = |unit: usize| chars.iter().zip(chars.iter().skip(unit)).all(|(a, b)| a == b);
    if (1..=LONGEST_UNIT.min(length / 2)).any(repeats) || outside_rows(&chars) <= (length / 4).min(2) {
        return true;
    }
    let word = typed.trim_matches(|c: char| !c.is_alphabetic());
    let around: Vec<char> = typed.replacen(word, "", 1).chars().collect();
    let is_bare = around.len() <= MOST_AROUND || outside_rows(&around) == 0;
    let (typed, word) = (skeleton(typed), skeleton(if is_bare { word } else { "" }));
    let is_word = |text: &str| {
        let text = skeleton(&text.to_lowercase());
        !text.is_empty() && (text == typed || text == word)
    };
    let is_known = |text: &&str| {
        let parts = text.split(|c: char| !c.is_alphanumeric());
        is_word(text) || text.split('@').take(1).chain(parts).any(is_word)
    };
    WORDS.split(' ').any(is_word) || known.iter().any(is_known)
}

/// How many characters are neither in a row nor in three equal characters.
fn outside_rows(chars: &[char]) -> usize {
    let (mut outside, mut rest) = (0, chars);
    while let Some((_, beyond)) = rest.split_first() {
        let is_row = |length: &usize| {
            let piece = rest.get(..*length).unwrap_or_default();
            let forward: String = piece.iter().collect();
            let backward: String = piece.iter().rev().collect();
            ROWS.contains(&forward)
                || ROWS.contains(&backward)
                || piece.iter().all(|c| piece.first() == Some(c))
        };
        let row = (SHORTEST_ROW..=rest.len()).take_while(is_row).last();
        outside += usize::from(row.is_none());
        rest = row.map_or(beyond, |length| rest.get(length..).unwrap_or_default());
    }
    outside
}

/// The letters and digits of a text. Digits and signs that replace letters become those letters.
fn skeleton(text: &str) -> String {
    let letter = |c: char| match c {
        '0' => 'o',
        '1' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        other => other,
    };
    text.chars().map(letter).filter(|c| c.is_alphanumeric()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: [&str; 4] = [
        "Alice.Liddell@example.com",
        "Alice Liddell",
        "+15550003",
        "id.wonderland.org",
    ];

    #[test]
    fn what_is_tried_first_is_guessable() {
        for password in [
            "password",
            "Password1!",
            "P@ssw0rd",
            "password123456",
            "123password",
            "passw0rd2026",
            "iloveyou",
            "trustno1",
            "dragon12",
            "Sommer2026!",
            "admin123",
            "contraseña1",
            "12345678",
            "87654321",
            "0987654321",
            "abcdefgh",
            "qwertyui",
            "QWERTZUIOP",
            "azerty123",
            "1qaz2wsx",
            "zaq12wsx",
            "1q2w3e4r",
            "q1w2e3r4",
            "abcd1234",
            "123qweasd",
            "a123456789",
            "qwerty12",
            "147258369",
            "11223344",
            "٠١٢٣٤٥٦٧",
            "aaaaaaaa",
            "        ",
            "12121212",
            "abcabcabc",
            "1234512345",
            "passpass",
            "ああああああああ",
            "$$$$$$$$",
            "idsvc2026",
        ] {
            assert!(is_guessable(password, &[]), "{password}");
        }
    }

    #[test]
    fn the_best_known_passwords_are_refused() {
        let best_known = "password 12345678 123456789 1234567890 0123456789 987654321 87654321 11111111 00000000 88888888 \
            123123123 12341234 12344321 11223344 147258369 789456123 qwertyuiop qwerty123 qwerty12 \
            qwerty1234 1q2w3e4r 1q2w3e4r5t 1qaz2wsx zaq12wsx q1w2e3r4 q1w2e3r4t5 1234qwer qwer1234 asdfghjkl \
            asdfasdf abcd1234 password1 password123 passw0rd p@ssw0rd iloveyou iloveyou1 trustno1 superman \
            football baseball basketball princess princess1 sunshine starwars welcome1 welcome123 admin123 \
            administrator letmein1 changeme computer internet whatever michelle jennifer samantha corvette \
            mercedes steelers midnight cocacola marlboro blink182 chocolate liverpool hollywood1 ronaldo07 linkinpark \
            schalke04 slipknot666 bulldogs12";
        assert_eq!(best_known.split(' ').count(), 73);
        for password in best_known.split(' ') {
            assert!(is_guessable(password, &[]), "{password}");
        }
    }

    #[test]
    fn what_is_known_of_the_user_is_guessable() {
        for password in [
            "alice.liddell@example.com",
            "ALICE.LIDDELL",
            "alice liddell",
            "AliceLiddell",
            "al1ce1984!",
            "liddell1",
            "+15550003",
            "15550003",
            "id.wonderland.org",
            "wonderland",
            "wonderland123456",
        ] {
            assert!(is_guessable(password, &KNOWN), "{password}");
        }
        assert!(!is_guessable("kx7nvt2m", &[""]));
    }

    #[test]
    fn what_only_contains_such_things_is_not() {
        for password in [
            "correct horse battery staple",
            "my password is long",
            "password of alice",
            "sunshine dragon",
            "dragon84729471",
            "kx7nvt2m",
            "alice in her wonderland",
            "ぱすわーどです1",
            "2026-11-23",
            "qwertyuiop and so on",
        ] {
            assert!(!is_guessable(password, &KNOWN), "{password}");
        }
        let minimal = ["4", "42", "ab1"];
        assert!(minimal.iter().all(|password| !is_guessable(password, &[])));
    }
}
