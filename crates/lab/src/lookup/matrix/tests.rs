use super::*;

fn chosen(text: &str) -> Vec<f64> {
    Matrix::parse(text, 1.0).unwrap().choose(24, 1).unwrap().1
}

#[test]
fn three_forms_are_read() {
    let expected = [0.0, 10.0, 20.0, 10.0, 0.0, 30.0, 20.0, 30.0, 0.0];
    assert_eq!(chosen("# King\n0 10 20\n10 0 30\n20 30 0\n"), expected);
    // The second direction of a pair counts as much, and a second time only if it is shorter.
    assert_eq!(chosen("a,b 8\nb,a 12\na,c,20\nb,c,30\nb,c,99\n"), expected);
    assert_eq!(chosen("prb_id,x,dst_addr,min_rtt\n1,0,2,10\n1,0,3,20\n2,0,3,30\n"), expected);
    let micro = Matrix::parse("0 10000 20000\n10000 0 30000\n20000 30000 0", 1e-3).unwrap();
    assert_eq!(micro.choose(24, 1).unwrap().1, expected);
}

#[test]
fn pairs_without_a_time_are_avoided() {
    let text = "0 10 -1 20\n10 0 40 30\n-1 40 0 50\n20 30 50 0";
    for seed in 0..20 {
        let (count, rtts) = Matrix::parse(text, 1.0).unwrap().choose(24, seed).unwrap();
        assert_eq!(count, 3);
        assert!(rtts.iter().enumerate().all(|(at, rtt)| (at % 4 == 0) == (*rtt == 0.0)), "{rtts:?}");
    }
    assert_eq!(
        Matrix::parse(text, 1.0).unwrap().choose(2, 1).unwrap_err(),
        Matrix::parse("a b 1", 1.0).unwrap().choose(24, 1).unwrap_err()
    );
}

#[test]
fn a_bad_file_is_refused_in_one_line() {
    for (text, expected) in [
        ("", "no three nodes"),
        ("a b c d\n", "neither a square matrix"),
        ("1 2 3\n1 2\n", "line 2: not a pair"),
        ("1 2 3\n1 2 x\n", "line 2: \"x\" is not a time"),
        ("1 2 3\n1 3 NaN\n", "line 2: \"NaN\" is not a time"),
        ("1 2 10001\n", "more than 10 s"),
    ] {
        let error = Matrix::parse(text, 1.0).and_then(|matrix| matrix.choose(24, 1)).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
    }
    assert!(Matrix::read(Path::new("/nonexistent"), 1.0).unwrap_err().starts_with("/nonexistent: "));
}
