use super::whole_lines;

#[test]
fn a_line_that_was_read_in_part_is_not_given_back() {
    for (unread, whole) in [
        ("", ""),
        ("{\"id\":1}\n{\"id\":2}\n", "{\"id\":1}\n{\"id\":2}\n"),
        ("\"id\":1}\n{\"id\":2}\n", "{\"id\":2}\n"),
        ("{\"b\":1}}\n{\"id\":2}\n", "{\"id\":2}\n"),
        ("}\n", ""),
        ("\n{\"id\":2}\n", "{\"id\":2}\n"),
        ("rest without end", ""),
    ] {
        assert_eq!(whole_lines(unread.as_bytes()), whole.as_bytes(), "{unread}");
    }
}
