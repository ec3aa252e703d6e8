// Package defaults_test compares our defaults of templates with the API's own. It is a package of its own,
// because its registrations with the scheme would change upstream's controllers in the other tests.
package defaults_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	_ "k8s.io/kubernetes/pkg/apis/apps/install" // its defaults
	_ "k8s.io/kubernetes/pkg/apis/core/install" // its defaults
	"sigs.k8s.io/yaml"

	"github.com/millrace/millrace/services/reconcilers/kube/revision"
)

// bare is a template with every field that contains fields with defaults, and without any default value.
const bare = `
metadata: {labels: {app: web}}
spec:
  initContainers: [{name: i, image: nginx, ports: [{containerPort: 80}], env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]
  containers:
  - name: c
    image: "registry.example:5000/nginx:1"
    ports: [{containerPort: 80}, {containerPort: 53, protocol: UDP}]
    env:
    - {name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
    - {name: B, valueFrom: {fileKeyRef: {volumeName: v, path: p, key: k}}}
    resources: {limits: {cpu: "1"}, requests: {cpu: 100m}}
    livenessProbe: {httpGet: {port: 80}}
    readinessProbe: {grpc: {port: 80}}
    startupProbe: {tcpSocket: {port: 80}, failureThreshold: 30}
    lifecycle: {postStart: {httpGet: {port: 80}}, preStop: {httpGet: {port: 80, path: /stop}}}
  ephemeralContainers: [{name: e, image: "nginx:latest", readinessProbe: {exec: {command: [a]}}}]
  resources: {limits: {cpu: "2"}}
  volumes:
  - {name: none}
  - {name: host, hostPath: {path: /}}
  - {name: secret, secret: {secretName: s}}
  - {name: map, configMap: {name: m}}
  - {name: down, downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}
  - {name: mix, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}]}}
  - {name: own, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce]}}}}
  - {name: image, image: {reference: nginx}}
  - {name: iscsi, iscsi: {targetPortal: a, iqn: b, lun: 0}}
  - {name: rbd, rbd: {monitors: [a], image: b}}
  - {name: azure, azureDisk: {diskName: a, diskURI: b}}
  - {name: scale, scaleIO: {gateway: a, system: b, secretRef: {name: c}}}
`

func TestDefaultsAreTheAPIs(t *testing.T) {
	set := &appsv1.StatefulSet{}
	if err := yaml.Unmarshal([]byte(bare), &set.Spec.Template); err != nil {
		t.Fatal(err)
	}
	ours := revision.Defaulted(set.Spec.Template.DeepCopy())
	legacyscheme.Scheme.Default(set)
	if !equality.Semantic.DeepEqual(ours, &set.Spec.Template) {
		t.Errorf("ours:\n%s\nthe API's:\n%s", yamlOf(t, ours), yamlOf(t, &set.Spec.Template))
	}
	if again := revision.Defaulted(ours); !equality.Semantic.DeepEqual(again, ours) {
		t.Errorf("it is another after the second time:\n%s", yamlOf(t, again))
	}
}

func yamlOf(t *testing.T, template *corev1.PodTemplateSpec) string {
	text, err := yaml.Marshal(template)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
