//! Streams that pass reads and writes on to a stream inside.

/// `AsyncRead` and `AsyncWrite` of a type that passes everything on: its generics in brackets, the type, and for each
/// pattern of `self` the place of the stream inside.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_io {
    ([$($generics:tt)*] $type:ty, $($pattern:pat => $stream:expr),+ $(,)?) => {
        impl<$($generics)*> ::tokio::io::AsyncRead for $type {
            fn poll_read(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                buf: &mut ::tokio::io::ReadBuf<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() { $($pattern => ::std::pin::Pin::new(&mut $stream).poll_read(cx, buf),)+ }
            }
        }

        $crate::forward_write!([$($generics)*] $type, $($pattern => $stream),+);
    };
}

/// As `forward_io!`, for writes only.
#[doc(hidden)]
#[macro_export]
macro_rules! forward_write {
    ([$($generics:tt)*] $type:ty, $($pattern:pat => $stream:expr),+ $(,)?) => {
        impl<$($generics)*> ::tokio::io::AsyncWrite for $type {
            fn poll_write(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bytes: &[u8],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() { $($pattern => ::std::pin::Pin::new(&mut $stream).poll_write(cx, bytes),)+ }
            }

            fn poll_write_vectored(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
                bufs: &[::std::io::IoSlice<'_>],
            ) -> ::std::task::Poll<::std::io::Result<usize>> {
                match self.get_mut() {
                    $($pattern => ::std::pin::Pin::new(&mut $stream).poll_write_vectored(cx, bufs),)+
                }
            }

            fn is_write_vectored(&self) -> bool {
                match self { $($pattern => $stream.is_write_vectored(),)+ }
            }

            fn poll_flush(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() { $($pattern => ::std::pin::Pin::new(&mut $stream).poll_flush(cx),)+ }
            }

            fn poll_shutdown(
                self: ::std::pin::Pin<&mut Self>,
                cx: &mut ::std::task::Context<'_>,
            ) -> ::std::task::Poll<::std::io::Result<()>> {
                match self.get_mut() { $($pattern => ::std::pin::Pin::new(&mut $stream).poll_shutdown(cx),)+ }
            }
        }
    };
}
