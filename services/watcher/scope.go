package watcher

import "github.com/millrace/millrace/pkg/events/kinds"

// Scope is the share of the kinds that a watcher may watch. With scopes, two watchers can have
// identities with different rights. The watchers of a scope share its kinds out among themselves,
// and leave the other kinds alone.
type Scope string

// The scopes. The zero value is All.
const (
	// All is every kind.
	All Scope = "all"
	// BuiltIn is Kubernetes' own kinds except Secrets: RBAC can name them.
	BuiltIn Scope = "built-in"
	// Other is Secrets, and the kinds that this version does not know as Kubernetes' own.
	Other Scope = "other"
)

// Scopes lists all scopes.
var Scopes = []Scope{All, BuiltIn, Other}

// Has reports whether a kind is in the scope.
func (s Scope) Has(kind kinds.Name) bool {
	if s == All || s == "" {
		return true
	}
	return (kinds.IsBuiltIn(kind) && kind != kinds.Secrets.Name) == (s == BuiltIn)
}

// group is the name under which the watchers of a scope know each other.
func (s Scope) group() string {
	if s == All {
		return ""
	}
	return string(s)
}
