// Package ui holds the web page of the record against a browser: the page of
// `millrace ui`, served from a real bus on which a small story has been told, in a
// Chromium without a window.
package ui
