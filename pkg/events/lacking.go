package events

// The reasons for which an ask is refused that only a change of the cluster's kinds can
// cure, however often it is asked again.
const (
	// NoMatch: no resource is served under the kind that was named.
	NoMatch = "NoMatch"
	// NoSubresource: the resource does not have the subresource that was asked for.
	NoSubresource = "NoSuchSubresource"
)

// Lacks tells whether something was refused for one of them.
func (r Result) Lacks() bool {
	return r.Status == Refused && (r.Reason == NoMatch || r.Reason == NoSubresource)
}
