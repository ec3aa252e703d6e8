// Package ui tests the web page of the record in a browser: the page of `millrace ui`, served from a real bus
// with a small story, in a headless Chromium.
package ui
