package query

// Reasons for refusing an ask that only a change of the cluster's kinds can remove; to ask again
// does not help.
const (
	// NoMatch: the API server serves no resource for the named kind.
	NoMatch = "NoMatch"
	// NoSubresource: the resource does not have the requested subresource.
	NoSubresource = "NoSuchSubresource"
)
