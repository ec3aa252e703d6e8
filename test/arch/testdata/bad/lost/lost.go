// Package lost is in no layer.
package lost // want: belongs to no layer
