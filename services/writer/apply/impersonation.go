package apply

import (
	"net/http"
	"strings"

	"github.com/millrace/millrace/services/writer/plan"
)

// NotImpersonated is the reason of a request that the API server refused because the writer may
// not impersonate the controller, or may not make this request as any controller.
const NotImpersonated = plan.ReasonNotImpersonated

// cannotImpersonate is in the API server's message of every such refusal.
const cannotImpersonate = "cannot impersonate"

// isOwnRefusal reports whether a request was refused because of the writer's own rights.
func isOwnRefusal(r plan.Response) bool {
	return r.Code == http.StatusForbidden && strings.Contains(r.Message, cannotImpersonate)
}

// explainRefusal adds which roles are missing if a request was refused because of the writer's
// rights, and not the controller's. If both ways of impersonation fail the API server names only
// one of them.
func explainRefusal(a Actor, r plan.Response) plan.Response {
	if !isOwnRefusal(r) {
		return r
	}
	r.Reason = NotImpersonated
	r.Message = "the writer may not do this as " + a.Identity +
		": give it the roles that millrace rbac prints (with --impersonation=classic before Kubernetes 1.36); the API server says: " + r.Message
	return r
}
