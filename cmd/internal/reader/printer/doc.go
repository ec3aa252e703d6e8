// Package printer prints answers for people: lines and tables with colours if the terminal
// shows them, and times, changed fields and names of objects as all commands write them.
package printer
