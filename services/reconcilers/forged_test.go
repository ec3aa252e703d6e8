package reconcilers_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/query"
	"github.com/millrace/millrace/services/reconcilers/reconcile"
	"github.com/millrace/millrace/services/reconcilers/reconciletest"
	"github.com/millrace/millrace/services/reconcilers/story"
)

// honest is a command from a story of a controller, with its turn.
type honest struct {
	d       reconcile.Description
	turn    events.Turn
	own     metav1.Object
	read    func(events.Ref) metav1.Object
	command events.Command
	story   string
}

func (h honest) fits(c events.Command) error {
	return h.d.Fits(h.turn, func() metav1.Object { return h.own }, h.read)(c)
}

// told returns the commands of all stories of a controller.
func told(t testing.TB, c reconcile.Any) (all []honest) {
	t.Helper()
	d := c.Describe()
	paths, err := filepath.Glob(filepath.Join("controllers", folder(d.Name), "testdata", "*.txtar"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no stories in %s (%v)", d.Name, folder(d.Name), err)
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		s, err := story.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		view, err := yaml.YAMLToJSON(s.View)
		if err != nil {
			t.Fatal(err)
		}
		decision, err := c.Judge(view, s.Now)
		if err != nil {
			t.Fatalf("%s: judge: %v", path, err)
		}
		if len(decision.Commands) == 0 {
			continue
		}
		turn, own, err := reconciletest.Turn(d, view)
		if err != nil {
			t.Fatalf("%s: make the turn: %v", path, err)
		}
		for _, command := range decision.Commands {
			all = append(all, honest{d, turn, own, reconciletest.Objects(view), command, filepath.Base(path)})
		}
	}
	return all
}

// folder returns the folder of a controller.
func folder(name string) string {
	name = strings.TrimSuffix(name, "-controller")
	switch name {
	case "endpointslice-mirroring", "horizontal-pod-autoscaler", "ephemeral-volume", "resourcequota", "node-lifecycle",
		"taint-eviction", "clusterrole-aggregation", "service-cidr", "validatingadmissionpolicy-status", "ttl-after-finished", "serviceaccount-token", "selinux-warning":
		return strings.ReplaceAll(name, "-", "")
	case "garbage-collector":
		return "garbagecollector"
	case "pod-garbage-collector":
		return "podgc"
	case "root-ca-certificate-publisher":
		return "rootcapublisher"
	case "legacy-serviceaccount-token-cleaner":
		return "legacytokencleaner"
	case "persistentvolumeclaim-protection":
		return "pvcprotection"
	case "persistentvolume-binder":
		return "persistentvolumebinder"
	case "persistentvolume-protection":
		return "pvprotection"
	case "persistentvolume-attach-detach":
		return "attachdetach"
	case "persistentvolume-expander":
		return "volumeexpander"
	case "bootstrap-signer":
		return "bootstrapsigner"
	case "token-cleaner":
		return "tokencleaner"
	case "certificatesigningrequest-approving":
		return "csrapproving"
	case "podcertificaterequest-cleaner":
		return "podcertificaterequestcleaner"
	case "node-ipam":
		return "nodeipam"
	case "kube-apiserver-serving-clustertrustbundle-publisher":
		return "clustertrustbundlepublisher"
	case "certificatesigningrequest-signing":
		return "csrsigning"
	case "certificatesigningrequest-cleaner":
		return "csrcleaner"
	case "volumeattributesclass-protection":
		return "vacprotection"
	case "podgroup-protection":
		return "podgroupprotection"
	case "storage-version-migrator":
		return "storageversionmigrator"
	case "storageversion-garbage-collector":
		return "storageversiongc"
	case "device-taint-eviction":
		return "devicetainteviction"
	default:
		return name
	}
}

// forgery changes an honest command; ok is false if the forgery does not apply to it.
type forgery struct {
	name string
	make func(h honest, c *events.Command) (ok bool)
}

func always(change func(c *events.Command)) func(honest, *events.Command) bool {
	return func(_ honest, c *events.Command) bool {
		change(c)
		return true
	}
}

// forgeries are commands that a stolen key could sign. None may fit any controller's promise.
var forgeries = []forgery{
	{"a verb that is none", always(func(c *events.Command) { c.Verb = "bind" })},
	{"a Secret is created", always(func(c *events.Command) {
		c.Verb, c.Kind, c.Version, c.Subresource = events.VerbCreate, "secrets", "v1", ""
	})},
	{"a role binding", always(func(c *events.Command) {
		c.Verb, c.Kind, c.Version, c.Subresource = events.VerbCreate, "clusterrolebindings.rbac.authorization.k8s.io", "v1", ""
	})},
	{"a webhook", always(func(c *events.Command) {
		c.Verb, c.Kind, c.Version, c.Subresource = events.VerbUpdate, "mutatingwebhookconfigurations.admissionregistration.k8s.io", "v1", ""
	})},
	{"exec", always(func(c *events.Command) { c.Verb, c.Kind, c.Subresource = events.VerbCreate, "pods", "exec" })},
	{"attach", always(func(c *events.Command) { c.Verb, c.Kind, c.Subresource = events.VerbCreate, "pods", "attach" })},
	{"proxy", always(func(c *events.Command) { c.Verb, c.Kind, c.Subresource = events.VerbCreate, "services", "proxy" })},
	{"ephemeral containers", always(func(c *events.Command) {
		c.Verb, c.Kind, c.Subresource = events.VerbPatch, "pods", "ephemeralcontainers"
	})},
	{"a binding", always(func(c *events.Command) { c.Verb, c.Kind, c.Subresource = events.VerbCreate, "pods", "binding" })},
	{"an eviction", always(func(c *events.Command) { c.Verb, c.Kind, c.Subresource = events.VerbCreate, "pods", "eviction" })},
	{"a token", always(func(c *events.Command) { c.Verb, c.Kind, c.Subresource = events.VerbCreate, "serviceaccounts", "token" })},
	{"approval", always(func(c *events.Command) {
		c.Verb, c.Kind, c.Subresource = events.VerbUpdate, "certificatesigningrequests.certificates.k8s.io", "approval"
	})},
	{"an approval for another signer", approval(func(body map[string]any) { within(body, "spec")["signerName"] = "kubernetes.io/kube-apiserver-client" })},
	{"an approval of another request", approval(func(body map[string]any) { within(body, "spec")["request"] = "eA==" })},
	{"an approval that labels", approval(func(body map[string]any) { labelled(within(body, "metadata"), "labels") })},
	{"a denial", approval(func(body map[string]any) {
		status := within(body, "status")
		status["conditions"] = append(list(status["conditions"]), map[string]any{"type": "Denied", "status": "True"})
	})},
	{"a certificate of another signer", certification(`{"spec":{"signerName":"kubernetes.io/kube-apiserver-client"}}`)},
	{"a certificate of a signer that is none", certification(`{"spec":{"signerName":"example.com/forged"}}`)},
	{"a certificate for other usages", certification(`{"spec":{"signerName":"kubernetes.io/kubelet-serving","usages":["client auth"]}}`)},
	{"a certificate that is made up", certification(`{"spec":{"signerName":"kubernetes.io/kubelet-serving"},"status":{"certificate":"eA=="}}`)},
	{"a question about another user", reviewed(func(body map[string]any) { body["user"] = "system:admin" })},
	{"a question about another group", reviewed(func(body map[string]any) { body["groups"] = append(list(body["groups"]), "system:masters") })},
	{"a question about another permission", reviewed(func(body map[string]any) { within(body, "resourceAttributes")["resource"] = "secrets" })},
	{"a question about a URL", reviewed(func(body map[string]any) { body["nonResourceAttributes"] = map[string]any{"path": "/", "verb": "get"} })},
	{"an unknown subresource", func(_ honest, c *events.Command) bool {
		c.Subresource += "x"
		return c.Verb != events.VerbRecord // which is no request
	}},
	{"an old version", func(h honest, c *events.Command) bool {
		known := writes(h, func(w reconcile.Write) bool { return !w.Any })
		c.Version = "v0"
		return known
	}},
	{"another namespace", func(h honest, c *events.Command) bool {
		c.Namespace = "kube-system"
		return writes(h, func(w reconcile.Write) bool { return w.On != "" }) && h.turn.Key.Namespace != ""
	}},
	{"the status of another", func(_ honest, c *events.Command) bool {
		c.Name = "another"
		return c.Verb == events.VerbUpdate && c.Subresource == "status"
	}},
	{"a status that labels", restated(func(meta map[string]any) { labelled(meta, "labels") })},
	{"a status that annotates", restated(func(meta map[string]any) { labelled(meta, "annotations") })},
	{"a status that asks for a rollback", restated(func(meta map[string]any) {
		within(meta, "annotations")["deprecated.deployment.rollback.to"] = "1"
	})},
	{"a status that takes all annotations off", restated(func(meta map[string]any) { meta["annotations"] = map[string]any{"a": "b"} })},
	{"a status with a finalizer", restated(func(meta map[string]any) { meta["finalizers"] = append(list(meta["finalizers"]), "example.com/forged") })},
	{"a status with an owner", restated(func(meta map[string]any) {
		meta["ownerReferences"] = append(list(meta["ownerReferences"]), map[string]any{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"})
	})},
	{"a status without metadata", func(_ honest, c *events.Command) bool {
		return restates(c) && bodied(func(body map[string]any) bool {
			body["metadata"] = map[string]any{"name": c.Name, "namespace": c.Namespace}
			return true
		})(honest{}, c)
	}},
	{"no uid", func(_ honest, c *events.Command) bool {
		c.If = nil
		return c.Verb == events.VerbUpdate || c.Verb == events.VerbPatch || c.Verb == events.VerbDelete
	}},
	{"no version", func(h honest, c *events.Command) bool {
		if c.If == nil || c.If.ResourceVersion == "" {
			return false
		}
		when := *c.If
		when.ResourceVersion, c.If = "", &when
		return c.Verb == events.VerbUpdate || writes(h, func(w reconcile.Write) bool { return w.Unchanged })
	}},
	{"at once", func(_ honest, c *events.Command) bool {
		was := c.GraceSeconds
		c.GraceSeconds = new(int64(0))
		return was == nil && c.Verb == events.VerbDelete
	}},
	{"another grace", func(_ honest, c *events.Command) bool {
		c.GraceSeconds = new(int64(1 << 40))
		return c.Verb == events.VerbDelete
	}},
	{"dependents are left behind", func(h honest, c *events.Command) bool {
		c.Propagation = metav1.DeletePropagationOrphan
		return c.Verb == events.VerbDelete && h.d.Name != "garbage-collector-controller" // which follows the object's finalizers
	}},
	{"an owner whose absence is not proven", func(h honest, c *events.Command) bool {
		if c.If == nil {
			return false
		}
		when := *c.If
		when.Absent, c.If = nil, &when
		return writes(h, func(w reconcile.Write) bool { return w.Absent != nil })
	}},
	{"another owner whose absence is proven", func(h honest, c *events.Command) bool {
		if c.If == nil || len(c.If.Absent) == 0 {
			return false
		}
		when := *c.If
		when.Absent = []metav1.OwnerReference{{APIVersion: "v1", Kind: when.Absent[0].Kind, Name: "forged"}}
		c.If = &when
		return writes(h, func(w reconcile.Write) bool { return w.Absent != nil })
	}},
	{"another uid whose absence is proven", func(h honest, c *events.Command) bool {
		if c.If == nil || len(c.If.Absent) == 0 {
			return false
		}
		when := *c.If
		when.Absent = []metav1.OwnerReference{when.Absent[0]}
		when.Absent[0].UID, c.If = "forged", &when
		return writes(h, func(w reconcile.Write) bool { return w.Absent != nil })
	}},
	{"a JSON patch", func(_ honest, c *events.Command) bool {
		c.PatchType, c.Body = types.JSONPatchType, json.RawMessage(`[{"op":"remove","path":"/metadata/labels"}]`)
		return c.Verb == events.VerbPatch
	}},
	{"a patch that applies", func(_ honest, c *events.Command) bool {
		was := c.PatchType
		c.PatchType = types.ApplyPatchType
		return c.Verb == events.VerbPatch && was != types.ApplyPatchType
	}},
	{"a patch of the whole metadata", patched(`{"metadata":null}`)},
	{"a patch that replaces", patched(`{"$patch":"replace"}`)},
	{"a patch of the spec", patched(`{"spec":{"hostNetwork":true}}`)},
	{"a patch of a label", patched(`{"metadata":{"labels":{"example.com/forged":"so"}}}`)},
	{"a patch of an annotation", patched(`{"metadata":{"annotations":{"example.com/forged":"so"}}}`)},
	{"conditions that are replaced by none", patched(`{"status":{"conditions":[{"$patch":"replace"}]}}`)},
	{"a condition that is not the controller's", patched(`{"status":{"conditions":[{"type":"PodScheduled","status":"False"}]}}`)},
	{"a patch of data", patched(`{"data":{"token":"eA=="}}`)},
	{"a patch with a key in other letters", patched(`{"Spec":{}}`)},
	{"another owner", owned(func(body map[string]any) bool {
		owners, _ := within(body, "metadata")["ownerReferences"].([]any)
		for _, o := range owners {
			if owner, _ := o.(map[string]any); owner["controller"] == true {
				owner["uid"] = "forged"
				return true
			}
		}
		return false
	})},
	{"no owner", func(h honest, c *events.Command) bool {
		return c.Verb == events.VerbCreate && writes(h, func(w reconcile.Write) bool { return w.Child }) &&
			bodied(func(body map[string]any) bool { delete(within(body, "metadata"), "ownerReferences"); return true })(h, c)
	}},
	{"an additional field", created(func(body map[string]any) { body["forged"] = map[string]any{"so": true} })},
	{"a deletion time", created(func(body map[string]any) { within(body, "metadata")["selfLink"] = "/api" })},
	{"a finalizer", templated(func(_, meta map[string]any) {
		meta["finalizers"] = append(list(meta["finalizers"]), "example.com/forged")
	})},
	{"a label", templated(func(_, meta map[string]any) { labelled(meta, "labels") })},
	{"an annotation", templated(func(_, meta map[string]any) { labelled(meta, "annotations") })},
	{"a volume of the host", templated(func(spec, _ map[string]any) {
		spec["volumes"] = append(list(spec["volumes"]), map[string]any{"name": "host", "hostPath": map[string]any{"path": "/"}})
	})},
	{"a privileged container", templated(func(spec, _ map[string]any) {
		spec["containers"] = append(list(spec["containers"]), map[string]any{"name": "x", "image": "x", "securityContext": map[string]any{"privileged": true}})
	})},
	{"another image", templated(func(spec, _ map[string]any) {
		spec["containers"] = []any{map[string]any{"name": "x", "image": "forged"}}
	})},
	{"another account", templated(func(spec, _ map[string]any) { spec["serviceAccountName"] = "forged" })},
	{"the host's network", templated(func(spec, _ map[string]any) { spec["hostNetwork"] = true })},
	{"a node of its own choice", templated(func(spec, _ map[string]any) { spec["nodeName"] = "master" })},
	{"a change of what is not its own", func(h honest, c *events.Command) bool {
		return c.Verb == events.VerbUpdate && writes(h, func(w reconcile.Write) bool { return w.Changes != nil }) && h.own != nil &&
			bodied(func(body map[string]any) bool { labelled(within(body, "metadata"), "labels"); return true })(h, c)
	}},
	{"a volume in the place of a claim", templated(func(spec, _ map[string]any) {
		spec["volumes"] = append([]any{map[string]any{"name": "data", "hostPath": map[string]any{"path": "/"}}}, list(spec["volumes"])...)
	})},
	{"the claim of another pod", templated(func(spec, _ map[string]any) {
		spec["volumes"] = append([]any{map[string]any{"name": "data", "persistentVolumeClaim": map[string]any{"claimName": "data-db-0"}}}, list(spec["volumes"])...)
	})},
	{"another template of what is there", changed("replicasets.apps", func(body map[string]any) {
		within(within(within(body, "spec"), "template"), "spec")["hostNetwork"] = true
	})},
	{"another selector of what is there", changed("replicasets.apps", func(body map[string]any) {
		within(within(body, "spec"), "selector")["matchLabels"] = map[string]any{"forged": "so"}
	})},
	{"a finalizer of a set that is there", changed("replicasets.apps", func(body map[string]any) {
		within(body, "metadata")["finalizers"] = []any{"example.com/forged"}
	})},
	{"another size of a claim", changed("persistentvolumeclaims", func(body map[string]any) {
		within(body, "spec")["resources"] = map[string]any{"requests": map[string]any{"storage": "1Ei"}}
	})},
	{"a claim without its finalizer", changed("persistentvolumeclaims", func(body map[string]any) {
		within(body, "metadata")["finalizers"] = []any{"example.com/forged"}
	})},
	{"a label of a claim", changed("persistentvolumeclaims", func(body map[string]any) { labelled(within(body, "metadata"), "labels") })},
	{"a claim to other devices", claimed(func(body map[string]any) {
		within(within(body, "spec"), "devices")["requests"] = []any{map[string]any{"name": "r", "exactly": map[string]any{"deviceClassName": "gpus", "adminAccess": true}}}
	})},
	{"a label of a claim to devices", claimed(func(body map[string]any) { labelled(within(body, "metadata"), "labels") })},
	{"an annotation of a claim to devices", claimed(func(body map[string]any) { labelled(within(body, "metadata"), "annotations") })},
	{"a finalizer of a claim to devices", claimed(func(body map[string]any) {
		within(body, "metadata")["finalizers"] = []any{"example.com/forged"}
	})},
	{"another template in a revision", func(h honest, c *events.Command) bool {
		return c.Kind == "controllerrevisions.apps" && (c.Verb == events.VerbCreate || c.Verb == events.VerbUpdate) && bodied(func(body map[string]any) bool {
			within(within(within(within(body, "data"), "spec"), "template"), "spec")["hostNetwork"] = true
			return true
		})(h, c)
	}},
	{"a size in a revision", func(h honest, c *events.Command) bool {
		return c.Kind == "controllerrevisions.apps" && c.Verb == events.VerbCreate && bodied(func(body map[string]any) bool {
			within(within(body, "data"), "spec")["replicas"] = 0
			return true
		})(h, c)
	}},
	{"a revision that deletes the template", func(h honest, c *events.Command) bool {
		return c.Kind == "controllerrevisions.apps" && c.Verb == events.VerbCreate && bodied(func(body map[string]any) bool {
			within(within(within(body, "data"), "spec"), "template")["$patch"] = "delete"
			return true
		})(h, c)
	}},
	{"another owner of a claim", changed("persistentvolumeclaims", func(body map[string]any) {
		within(body, "metadata")["ownerReferences"] = []any{map[string]any{"apiVersion": "v1", "kind": "Node", "name": "gone", "uid": "gone"}}
	})},
	{"a taint that is not the controller's", retainted(func(taints []any) []any {
		return append(taints, map[string]any{"key": "example.com/forged", "effect": "NoExecute"})
	})},
	{"a taint of another manager is taken off", retainted(func(taints []any) []any {
		return slices.DeleteFunc(taints, func(t any) bool {
			taint, _ := t.(map[string]any)
			return taint["key"] == "mine"
		})
	})},
	{"taints that a directive takes off", func(h honest, c *events.Command) bool {
		return c.Kind == "nodes" && c.Verb == events.VerbPatch && c.Subresource == "" && bodied(func(body map[string]any) bool {
			within(body, "spec")["$deleteFromPrimitiveList/taints"] = []any{"mine"}
			return true
		})(h, c)
	}},
	{"an Event of another reason", noticed(func(n *events.Notice) { n.Reason = "for ged" })},
	{"an Event about another kind", noticed(func(n *events.Notice) { n.About.Kind, n.About.APIVersion = "Secret", "v1" })},
	{"an Event elsewhere", func(h honest, c *events.Command) bool {
		mismatch := c.OnApplied != nil && c.OnApplied.Reason == "VolumeMismatch" // the turn of a volume records this Event about any claim
		return h.turn.Key.Namespace != "" && !mismatch && noticed(func(n *events.Notice) { n.About.Namespace = "kube-system" })(h, c)
	}},
	{"an Event about a node", func(h honest, c *events.Command) bool {
		return h.d.Name != "node-lifecycle-controller" && h.d.Name != "garbage-collector-controller" && noticed(func(n *events.Notice) {
			n.About.Kind, n.About.APIVersion, n.About.Namespace, n.About.Name, n.About.UID = "Node", "v1", "", "worker", "w"
		})(h, c)
	}},
}

// writes reports whether has is true for every promise that covers the command, and for at
// least one.
func writes(h honest, has func(reconcile.Write) bool) bool {
	found := false
	for _, w := range h.d.Writes {
		if w.Verb == h.command.Verb && (w.Any || w.Kind == h.command.Kind) && w.Subresource == h.command.Subresource {
			if found = has(w); !found {
				return false
			}
		}
	}
	return found
}

func patched(body string) func(honest, *events.Command) bool {
	return func(_ honest, c *events.Command) bool {
		c.Body = json.RawMessage(body)
		return c.Verb == events.VerbPatch
	}
}

// bodied changes the body of a command.
func bodied(change func(body map[string]any) bool) func(honest, *events.Command) bool {
	return func(_ honest, c *events.Command) bool {
		var body map[string]any
		if json.Unmarshal(c.Body, &body) != nil || !change(body) {
			return false
		}
		c.Body = reconcile.Body(body)
		return c.Verb != events.VerbAsk
	}
}

// restated changes the metadata in the body of a status update.
func restated(change func(meta map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return restates(c) && bodied(func(body map[string]any) bool { change(within(body, "metadata")); return true })(h, c)
	}
}

func restates(c *events.Command) bool {
	return c.Verb == events.VerbUpdate && c.Subresource == "status"
}

// approval changes the body of an approval.
func approval(change func(body map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return c.Verb == events.VerbUpdate && c.Subresource == query.SubApproval && bodied(func(body map[string]any) bool { change(body); return true })(h, c)
	}
}

// certification replaces the body of a command that issues a certificate.
func certification(body string) func(honest, *events.Command) bool {
	return func(_ honest, c *events.Command) bool {
		of := c.Certifies()
		c.Body = json.RawMessage(body)
		return of
	}
}

// reviewed changes the question whether a user has a permission.
func reviewed(change func(body map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		bodied(func(body map[string]any) bool { change(body); return true })(h, c)
		return c.Verb == events.VerbAsk && c.Subresource == query.SubReview
	}
}

// owned changes the body of an object that must name the key's object as its controller.
func owned(change func(body map[string]any) bool) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return writes(h, func(w reconcile.Write) bool { return w.Child }) && bodied(change)(h, c)
	}
}

// created changes the body of a create.
func created(change func(body map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return c.Verb == events.VerbCreate && bodied(func(body map[string]any) bool { change(body); return true })(h, c)
	}
}

// changed changes the body of an update of a kind that the controller does not own.
func changed(kind kinds.Name, change func(body map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return c.Verb == events.VerbUpdate && c.Kind == kind && c.Subresource == "" && h.d.Owns != nil && h.d.Owns.Name != kind &&
			bodied(func(body map[string]any) bool { change(body); return true })(h, c)
	}
}

// claimed changes the body of a new ResourceClaim.
func claimed(change func(body map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return c.Verb == events.VerbCreate && c.Kind == kinds.ResourceClaims.Name && bodied(func(body map[string]any) bool { change(body); return true })(h, c)
	}
}

// retainted changes the taints in a patch of a node.
func retainted(change func(taints []any) []any) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		return c.Kind == "nodes" && c.Verb == events.VerbPatch && bodied(func(body map[string]any) bool {
			spec := within(body, "spec")
			was := list(spec["taints"])
			next := change(slices.Clone(was))
			if len(next) == len(was) {
				return false
			}
			spec["taints"] = next
			return true
		})(h, c)
	}
}

// templated changes the pod, or the pod template, of a create that copies its controller's
// template.
func templated(change func(spec, meta map[string]any)) func(honest, *events.Command) bool {
	return func(h honest, c *events.Command) bool {
		copied := func(w reconcile.Write) bool { return w.Child && w.Kind == "pods" }
		templates := func(w reconcile.Write) bool { return len(w.Copies) > 0 && w.Kind == "replicasets.apps" }
		switch {
		case writes(h, copied):
			return created(func(body map[string]any) { change(within(body, "spec"), within(body, "metadata")) })(h, c)
		case writes(h, templates):
			return created(func(body map[string]any) {
				template := within(within(body, "spec"), "template")
				change(within(template, "spec"), within(template, "metadata"))
			})(h, c)
		default:
			return false
		}
	}
}

func noticed(change func(n *events.Notice)) func(honest, *events.Command) bool {
	return func(_ honest, c *events.Command) bool {
		if c.OnApplied == nil {
			return false
		}
		n := *c.OnApplied
		change(&n)
		c.OnApplied = &n
		return true
	}
}

func within(body map[string]any, field string) map[string]any {
	inner, _ := body[field].(map[string]any)
	if inner == nil {
		inner = map[string]any{}
		body[field] = inner
	}
	return inner
}

func list(value any) []any {
	elements, _ := value.([]any)
	return elements
}

func labelled(meta map[string]any, field string) {
	within(meta, field)["example.com/forged"] = "so"
}

// Every command of every controller's stories fits its promise, and no forgery made of one
// does.
func TestForgeriesOfEveryControllerAreRefused(t *testing.T) {
	made := map[string]int{}
	for _, c := range every(t) {
		name := c.Describe().Name
		t.Run(name, func(t *testing.T) {
			commands := told(t, c)
			if len(commands) == 0 {
				t.Fatal("the stories of this controller have no commands")
			}
			for _, h := range commands {
				if err := h.fits(h.command); err != nil {
					t.Errorf("%s: the honest %s of %v does not fit: %v", h.story, h.command.Verb, h.command.Ref(), err)
				}
				for _, f := range forgeries {
					forged := h.command
					if !f.make(h, &forged) || fmt.Sprint(forged) == fmt.Sprint(h.command) && forged.OnApplied == h.command.OnApplied {
						continue
					}
					made[f.name]++
					if h.fits(forged) == nil {
						t.Errorf("%s: %s made of %s %v (%s) fits", h.story, f.name, h.command.Verb, h.command.Ref(), h.command.Subresource)
					}
				}
			}
		})
	}
	for _, f := range forgeries {
		if made[f.name] == 0 {
			t.Errorf("%s was never made", f.name)
		}
	}
}
