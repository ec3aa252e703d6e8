// Package objects has what can be done to the objects of a world: copy them, decode them, and carry out effects
// as an API server would ([After]).
package objects
