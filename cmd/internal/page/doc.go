// Package page is the web page of the record: the same answers as the commands
// give, over HTTP as JSON, and a page that shows them.
//
// It only reads. Every client that can reach it sees what the record has, so it listens on
// the loopback interface unless it is told otherwise, and it answers only the
// page that it has served itself: requests that other sites have a browser make are
// refused, and so are those under a name that is not its own.
//
// The page is plain HTML, style sheets and JavaScript modules in folder site, built
// into the program; it asks no other server for anything. What the record says reaches it
// as text and is only ever put on it as text: the browser is told to refuse
// everything else.
package page
