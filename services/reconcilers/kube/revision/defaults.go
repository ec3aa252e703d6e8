package revision

import (
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/millrace/millrace/services/reconcilers/reconcile"
)

// HoldsByDefault is [Holds] with the defaults of the API filled in. A field that has a
// default now, and had none when the revision was created, makes no other template, so
// pods are not replaced for it.
//
// Upstream: setMatchesLatestExistingRevision of the StatefulSet controller.
func HoldsByDefault(r *appsv1.ControllerRevision, t *corev1.PodTemplateSpec) bool {
	held, ok := Template(r)
	return ok && equality.Semantic.DeepEqual(Defaulted(held), t)
}

// Defaulted is a pod template with the defaults that the API server of Kubernetes 1.36
// fills in.
//
// Upstream: SetObjectDefaults_StatefulSet in pkg/apis/apps/v1.
func Defaulted(t *corev1.PodTemplateSpec) *corev1.PodTemplateSpec {
	var tree map[string]any
	if err := json.Unmarshal(reconcile.Body(t), &tree); err != nil {
		return t // impossible: it was encoded just now
	}
	if spec, ok := tree["spec"].(map[string]any); ok {
		for _, d := range defaults {
			fill(spec, strings.Split(d.path, "."), d.value)
		}
	}
	full := new(corev1.PodTemplateSpec)
	if err := json.Unmarshal(reconcile.Body(tree), full); err != nil {
		return t // impossible: the defaults have the types of their fields
	}
	return full
}

// preset is the default of a field. path leads to it through fields, and through every
// element of lists.
type preset struct {
	path  string
	value func(of map[string]any) any
}

var defaults = all()

// fill sets a field to its default where the parent exists and the field does not.
func fill(of any, path []string, value func(map[string]any) any) {
	switch of := of.(type) {
	case []any:
		for _, item := range of {
			fill(item, path, value)
		}
	case map[string]any:
		if len(path) > 1 {
			fill(of[path[0]], path[1:], value)
			return
		}
		if has := of[path[0]]; has == nil || has == "" {
			if v := value(of); v != nil {
				of[path[0]] = v
			}
		}
	}
}

func always(value any) func(map[string]any) any { return func(map[string]any) any { return value } }

func all() []preset {
	presets := []preset{
		{"dnsPolicy", always("ClusterFirst")},
		{"restartPolicy", always("Always")},
		{"securityContext", always(map[string]any{})},
		{"terminationGracePeriodSeconds", always(30)},
		{"schedulerName", always("default-scheduler")},
		{"volumes.emptyDir", emptyDir},
		{"volumes.image.pullPolicy", pullPolicy("reference")},
		{"volumes.hostPath.type", always("")},
		{"volumes.secret.defaultMode", always(0o644)},
		{"volumes.configMap.defaultMode", always(0o644)},
		{"volumes.downwardAPI.defaultMode", always(0o644)},
		{"volumes.downwardAPI.items.fieldRef.apiVersion", always("v1")},
		{"volumes.projected.defaultMode", always(0o644)},
		{"volumes.projected.sources.downwardAPI.items.fieldRef.apiVersion", always("v1")},
		{"volumes.projected.sources.serviceAccountToken.expirationSeconds", always(3600)},
		{"volumes.ephemeral.volumeClaimTemplate.spec.volumeMode", always("Filesystem")},
		{"volumes.iscsi.iscsiInterface", always("default")},
		{"volumes.rbd.pool", always("rbd")},
		{"volumes.rbd.user", always("admin")},
		{"volumes.rbd.keyring", always("/etc/ceph/keyring")},
		{"volumes.azureDisk.cachingMode", always("ReadWrite")},
		{"volumes.azureDisk.fsType", always("ext4")},
		{"volumes.azureDisk.readOnly", always(false)},
		{"volumes.azureDisk.kind", always("Shared")},
		{"volumes.scaleIO.storageMode", always("ThinProvisioned")},
		{"volumes.scaleIO.fsType", always("xfs")},
	}
	for _, kind := range []string{"initContainers.", "containers.", "ephemeralContainers."} {
		for _, p := range ofContainers() {
			presets = append(presets, preset{kind + p.path, p.value})
		}
	}
	return presets
}

// ofContainers are the defaults of every container.
func ofContainers() []preset {
	presets := []preset{
		{"imagePullPolicy", pullPolicy("image")},
		{"terminationMessagePath", always("/dev/termination-log")},
		{"terminationMessagePolicy", always("File")},
		{"ports.protocol", always("TCP")},
		{"env.valueFrom.fieldRef.apiVersion", always("v1")},
		{"env.valueFrom.fileKeyRef.optional", always(false)},
	}
	for _, probe := range []string{"livenessProbe.", "readinessProbe.", "startupProbe."} {
		presets = append(presets,
			preset{probe + "timeoutSeconds", always(1)},
			preset{probe + "periodSeconds", always(10)},
			preset{probe + "successThreshold", always(1)},
			preset{probe + "failureThreshold", always(3)},
			preset{probe + "grpc.service", always("")},
		)
	}
	for _, handler := range []string{"livenessProbe.", "readinessProbe.", "startupProbe.", "lifecycle.postStart.", "lifecycle.preStop."} {
		presets = append(presets,
			preset{handler + "httpGet.path", always("/")},
			preset{handler + "httpGet.scheme", always("HTTP")},
		)
	}
	return presets
}

// emptyDir is the default source of a volume without a source.
func emptyDir(volume map[string]any) any {
	if len(volume) > 1 {
		return nil
	}
	return map[string]any{}
}

// pullPolicy is the default pull policy for the image that a field names.
func pullPolicy(field string) func(map[string]any) any {
	return func(of map[string]any) any {
		image, _ := of[field].(string)
		name := image[strings.LastIndex(image, "/")+1:]
		name, digest, _ := strings.Cut(name, "@")
		_, tag, tagged := strings.Cut(name, ":")
		if tag == "latest" || !tagged && digest == "" {
			return "Always"
		}
		return "IfNotPresent"
	}
}
