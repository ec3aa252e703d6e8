package reader

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/check/ledger"
	"github.com/millrace/millrace/pkg/events/record"
)

// nameUsers reads from an audit log which users made the versions of an explanation that no
// controller of ours made; without a file it does nothing.
//
// Errors: the file cannot be read, or is no audit log.
func nameUsers(c *record.Cause, file string) error {
	if file == "" {
		return nil
	}
	writes, err := ledger.Audit(file)
	if err != nil {
		return fmt.Errorf("read --audit-log: %w", err)
	}
	writes = slices.DeleteFunc(writes, func(w check.Write) bool { return !w.Stored() })
	if len(writes) == 0 {
		return fmt.Errorf("read --audit-log: %s has no write that the API server carried out: name the file of its --audit-log-path", file)
	}
	askedBy(c, writes)
	if c.Last != nil {
		c.Last.By = inAudit(*c.Last, writes)
	}
	return nil
}

func askedBy(c *record.Cause, writes []check.Write) {
	c.Version.By = inAudit(c.Version, writes)
	for _, behind := range c.Causes {
		askedBy(behind, writes)
	}
}

// inAudit adds to who made a version the user in the audit log. A write whose answer is
// logged tells the version. Of the others those of the right sort count that ended within
// the skew of the clocks; where they are of several users, which one it was is not known.
func inAudit(v record.Version, writes []check.Write) record.Hand {
	by := v.By
	if by.Controller != "" || v.Event == record.Kept || v.Event == record.Found {
		return by
	}
	var users []string
	for i := range writes {
		w := &writes[i]
		if w.UID == v.UID && fmt.Sprint(w.Revision) == v.ResourceVersion && w.Ref == v.Object {
			by.User = w.As
			return by
		}
		if within := w.At.Sub(v.Time).Abs() <= skew; within && may(v, w) && !slices.Contains(users, w.As) {
			users = append(users, w.As)
		}
	}
	switch len(users) {
	case 0:
	case 1:
		by.User = users[0]
	default:
		by.Note = "the audit log has writes of several users at that time: " + strings.Join(users, ", ")
	}
	return by
}

// may tells whether a write whose answer is not logged may have made a version.
func may(v record.Version, w *check.Write) bool {
	named := w.Ref == v.Object || w.Ref.Name == "" && w.Verb == "deletecollection" && w.Ref.Kind == v.Object.Kind && w.Ref.Namespace == v.Object.Namespace
	deletes := strings.HasPrefix(w.Verb, "delete") || w.Subresource == "eviction"
	ends := v.Event == record.Leaving || v.Event == record.Ended
	creates := w.Verb == "create" && w.Subresource == ""
	return named && w.Revision == 0 && deletes == ends && creates == (v.Event == record.Created)
}
