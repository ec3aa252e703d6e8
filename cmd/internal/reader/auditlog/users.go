package auditlog

import (
	"fmt"
	"slices"
	"strings"

	"github.com/millrace/millrace/cmd/internal/check"
	"github.com/millrace/millrace/cmd/internal/check/ledger"
	"github.com/millrace/millrace/pkg/events/record"
)

// NameUsers looks up, in an audit log, the users that made the versions of an explanation that
// no Millrace controller made. Without a file it does nothing.
//
// Errors: the file cannot be read, or is no audit log.
func NameUsers(c *record.Cause, file string) error {
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

// inAudit adds the user in the audit log to the author of a version. A write whose response is
// logged has the version's resourceVersion. Of the other writes, inAudit considers those that may
// have made the version and ended within the clock skew; if they are of several users, the
// author stays unknown, with a note.
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

// may is whether a write whose response is not logged may have made a version.
func may(v record.Version, w *check.Write) bool {
	named := w.Ref == v.Object || w.Ref.Name == "" && w.Verb == "deletecollection" && w.Ref.Kind == v.Object.Kind && w.Ref.Namespace == v.Object.Namespace
	deletes := strings.HasPrefix(w.Verb, "delete") || w.Subresource == "eviction"
	ends := v.Event == record.Leaving || v.Event == record.Ended
	creates := w.Verb == "create" && w.Subresource == ""
	return named && w.Revision == 0 && deletes == ends && creates == (v.Event == record.Created)
}
