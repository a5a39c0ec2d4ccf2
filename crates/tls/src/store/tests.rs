use super::*;

fn session(length: usize) -> Zeroizing<Vec<u8>> {
    Zeroizing::new(vec![1; length])
}

#[tokio::test]
async fn memory_is_bounded_by_number_and_bytes_and_a_session_is_taken_once() {
    let memory = MemorySessions::new(3, 100);
    for n in 0..5 {
        memory.put([n; 32], session(10)).await;
    }
    assert_eq!(memory.len(), 3);
    assert!(memory.take([1; 32]).await.is_none());
    assert!(memory.take([4; 32]).await.is_some() && memory.take([4; 32]).await.is_none());
    memory.put([9; 32], session(95)).await;
    assert_eq!((memory.len(), memory.lock().bytes), (1, 95));
    memory.put([8; 32], session(101)).await;
    assert!(memory.take([8; 32]).await.is_none() && memory.take([9; 32]).await.is_some());
    for n in 0..200 {
        memory.put([n; 32], session(1)).await;
        memory.take([n; 32]).await;
    }
    assert!(memory.is_empty() && memory.lock().order.len() <= 6 && memory.lock().bytes == 0);
}

/// Any bytes, and every prefix of a hello: no panic, no id.
#[test]
fn a_damaged_hello_has_no_ids() {
    let mut hello = vec![1, 0, 0, 0, 3, 3];
    hello.extend([0; 32]);
    hello.extend([0, 0, 2, 0x13, 1, 1, 0]);
    let identity = [&[0, 32][..], &[7; 32], &[0; 4]].concat();
    let identities = [&38_u16.to_be_bytes()[..], &identity].concat();
    let extension = [&[0, 41, 0, 40][..], &identities].concat();
    hello.extend(44_u16.to_be_bytes());
    hello.extend(extension);
    let record = |part: &[u8]| [&[22, 3, 1][..], &(part.len() as u16).to_be_bytes(), part].concat();
    assert_eq!(ids_in(&record(&hello)), [[7; 32]]);
    let (one, two) = hello.split_at(50);
    assert_eq!(ids_in(&[record(one), record(two)].concat()), [[7; 32]]);
    for length in 0..hello.len() {
        assert!(ids_in(&record(&hello[..length])).is_empty());
        assert!(ids_in(&record(&hello)[..length]).is_empty());
    }
    for byte in 0..=u8::MAX {
        assert!(ids_in(&[byte; 300]).is_empty());
    }
}
