// Package resolve finds the kinds and controllers that words mean: kubectl's spellings and
// short names of kinds, names and aliases of controllers. It suggests similar names for
// misspelt words.
package resolve
