// Package page serves the record as a web page: the answers of the commands as JSON over
// HTTP, and a page that shows them.
//
// It only reads. Every client that can reach it sees the whole record, so it listens on
// the loopback interface by default, and refuses requests that other sites have a browser
// make, and requests under another host name.
//
// The page is plain HTML, style sheets and JavaScript modules in folder site, embedded in
// the program; it loads nothing from other servers. It receives the record as text and
// inserts it only as text: the Content-Security-Policy has the browser refuse everything
// else.
package page
