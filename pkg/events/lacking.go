package events

// Reasons for refusing an ask that only a change of the cluster's kinds can remove; to ask again
// does not help.
const (
	// NoMatch: the API server serves no resource for the named kind.
	NoMatch = "NoMatch"
	// NoSubresource: the resource does not have the requested subresource.
	NoSubresource = "NoSuchSubresource"
)

// Lacks reports whether the result was refused with NoMatch or NoSubresource.
func (r Result) Lacks() bool {
	return r.Status == Refused && (r.Reason == NoMatch || r.Reason == NoSubresource)
}
