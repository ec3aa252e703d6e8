package arena

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
)

// playedIn is the label of cluster-scoped objects that an arena has created. Its value is the
// arena's namespace.
const playedIn = "millrace.io/played-in"

// driver is a CSI driver that does not exist.
const driver = "csi.example.com"

// managedAttach is the annotation of nodes whose volumes the attach-detach controller attaches,
// and not the kubelet.
const managedAttach = "volumes.kubernetes.io/controller-managed-attach-detach"

// mine selects this arena's cluster-scoped objects.
func (a *Arena) mine() metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: playedIn + "=" + a.Namespace}
}

// owned has the name and label of the i-th of these objects.
func (a *Arena) owned(i int) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", a.Namespace, i), Labels: map[string]string{playedIn: a.Namespace}}
}

// narrowed restricts a list or watch to this arena's cluster-scoped objects.
func (a *Arena) narrowed(from metav1.ListOptions) metav1.ListOptions {
	from.LabelSelector = a.mine().LabelSelector
	return from
}

// CreateVolumes creates n PersistentVolumes of one size, of a CSI driver that does not
// exist, with the reclaim policy Retain.
func (a *Arena) CreateVolumes(ctx context.Context, n int) error {
	return Parallel(20, n, func(i int) error {
		volume := &corev1.PersistentVolume{ObjectMeta: a.owned(i), Spec: corev1.PersistentVolumeSpec{
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:                   []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{
				Driver: driver, VolumeHandle: fmt.Sprintf("%s-%d", a.Namespace, i),
			}},
		}}
		if _, err := a.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create volume: %w", err)
		}
		return nil
	})
}

// CreateClaims creates n PersistentVolumeClaims, each of which can bind to any of these volumes.
func (a *Arena) CreateClaims(ctx context.Context, n int) error {
	return Parallel(20, n, func(i int) error {
		claim := &corev1.PersistentVolumeClaim{
			ObjectMeta: metav1.ObjectMeta{Name: claimName(i), Namespace: a.Namespace},
			Spec: corev1.PersistentVolumeClaimSpec{
				StorageClassName: ptr.To(""), AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			},
		}
		if _, err := a.client.CoreV1().PersistentVolumeClaims(a.Namespace).Create(ctx, claim, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create claim: %w", err)
		}
		return nil
	})
}

func claimName(i int) string { return fmt.Sprintf("data-%d", i) }

// BoundClaims counts the bound claims.
func (a *Arena) BoundClaims(ctx context.Context) (*Tally, error) {
	return a.tally(ctx, "claims are bound", func(from metav1.ListOptions) (watch.Interface, error) {
		return a.client.CoreV1().PersistentVolumeClaims(a.Namespace).Watch(ctx, from)
	}, isBound)
}

func isBound(object runtime.Object) bool {
	claim, is := object.(*corev1.PersistentVolumeClaim)
	return is && claim.Status.Phase == corev1.ClaimBound
}

// DeleteVolumes deletes the claims that the tally counts, and the volumes.
func (a *Arena) DeleteVolumes(ctx context.Context, claims *Tally) error {
	if err := a.client.CoreV1().PersistentVolumeClaims(a.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		return fmt.Errorf("delete claims: %w", err)
	}
	if err := claims.Gone(ctx); err != nil {
		return err
	}
	if err := a.client.CoreV1().PersistentVolumes().DeleteCollection(ctx, metav1.DeleteOptions{}, a.mine()); err != nil {
		return fmt.Errorf("delete volumes: %w", err)
	}
	return nil
}

// CreateNodes registers n nodes without a kubelet, whose volumes a controller attaches.
func (a *Arena) CreateNodes(ctx context.Context, n int) error {
	return Parallel(20, n, func(i int) error {
		node := &corev1.Node{ObjectMeta: a.owned(i)}
		node.Labels["millrace.io/unmanned"] = "true"
		node.Annotations = map[string]string{managedAttach: "true"}
		if _, err := a.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("register node: %w", err)
		}
		return nil
	})
}

// RangedNodes counts the nodes of CreateNodes that have a pod CIDR.
func (a *Arena) RangedNodes(ctx context.Context) (*Tally, error) {
	return a.tally(ctx, "nodes have a range", func(from metav1.ListOptions) (watch.Interface, error) {
		return a.client.CoreV1().Nodes().Watch(ctx, a.narrowed(from))
	}, func(object runtime.Object) bool {
		node, is := object.(*corev1.Node)
		return is && node.Spec.PodCIDR != ""
	})
}

// DeleteNodes deletes the nodes of CreateNodes.
func (a *Arena) DeleteNodes(ctx context.Context) error {
	if err := a.client.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, a.mine()); err != nil {
		return fmt.Errorf("delete nodes: %w", err)
	}
	return nil
}

// MountClaims creates a Pod for each of the first n claims, distributed over the given number of
// nodes of CreateNodes.
func (a *Arena) MountClaims(ctx context.Context, n, nodes int) error {
	return Parallel(20, n, func(i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("mounts-%d", i), Namespace: a.Namespace}, Spec: podSpec("nginx")}
		pod.Spec.NodeName = a.owned(i % nodes).Name
		pod.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claimName(i)},
		}}}
		return a.createPod(ctx, pod)
	})
}

func (a *Arena) createPod(ctx context.Context, pod *corev1.Pod) error {
	if _, err := a.client.CoreV1().Pods(a.Namespace).Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create pod %s: %w", pod.Name, err)
	}
	return nil
}

// Attachments counts the VolumeAttachments that are attached. It attaches the others, as the
// driver's attacher would.
func (a *Arena) Attachments(ctx context.Context) (*Tally, error) {
	return a.begin(ctx, &Tally{
		notice: newNotice(), what: "volumes are attached", met: map[types.UID]bool{},
		so:        func(object runtime.Object) bool { return object.(*storagev1.VolumeAttachment).Status.Attached },
		otherwise: func(object runtime.Object) error { return a.attach(ctx, object.(*storagev1.VolumeAttachment).Name) },
	}, func(from metav1.ListOptions) (watch.Interface, error) {
		return a.client.StorageV1().VolumeAttachments().Watch(ctx, from)
	})
}

// attach reports a volume as attached.
func (a *Arena) attach(ctx context.Context, name string) error {
	patch := []byte(`{"status":{"attached":true}}`)
	_, err := a.client.StorageV1().VolumeAttachments().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("say that %s is attached: %w", name, err)
	}
	return nil
}

// DeleteMounts deletes the Pods of MountClaims, and waits until their volumes, which the
// tally counts, are detached.
func (a *Arena) DeleteMounts(ctx context.Context, attachments *Tally) error {
	if err := a.DeletePods(ctx); err != nil {
		return err
	}
	return attachments.Gone(ctx)
}

// Requests are n CertificateSigningRequests of kubelets for client certificates.
func (a *Arena) Requests(n int) ([]*certificatesv1.CertificateSigningRequest, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a key: %w", err)
	}
	requests := make([]*certificatesv1.CertificateSigningRequest, n)
	for i := range requests {
		subject := pkix.Name{CommonName: fmt.Sprintf("system:node:%s-%d", a.Namespace, i), Organization: []string{"system:nodes"}}
		der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{Subject: subject}, key)
		if err != nil {
			return nil, fmt.Errorf("make a certificate request: %w", err)
		}
		requests[i] = &certificatesv1.CertificateSigningRequest{ObjectMeta: a.owned(i), Spec: certificatesv1.CertificateSigningRequestSpec{
			Request:    pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE REQUEST", Bytes: der}),
			SignerName: certificatesv1.KubeAPIServerClientKubeletSignerName,
			Usages:     []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageClientAuth},
		}}
	}
	return requests, nil
}

// Request creates CertificateSigningRequests.
func (a *Arena) Request(ctx context.Context, requests []*certificatesv1.CertificateSigningRequest) error {
	return Parallel(20, len(requests), func(i int) error {
		if _, err := a.client.CertificatesV1().CertificateSigningRequests().Create(ctx, requests[i], metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create certificate signing request: %w", err)
		}
		return nil
	})
}

// SignedRequests counts the CertificateSigningRequests of this arena that have a
// certificate.
func (a *Arena) SignedRequests(ctx context.Context) (*Tally, error) {
	return a.tally(ctx, "requests have their certificate", func(from metav1.ListOptions) (watch.Interface, error) {
		return a.client.CertificatesV1().CertificateSigningRequests().Watch(ctx, a.narrowed(from))
	}, func(object runtime.Object) bool {
		request, is := object.(*certificatesv1.CertificateSigningRequest)
		return is && len(request.Status.Certificate) > 0
	})
}

// DeleteRequests deletes the CertificateSigningRequests of this arena.
func (a *Arena) DeleteRequests(ctx context.Context) error {
	if err := a.client.CertificatesV1().CertificateSigningRequests().DeleteCollection(ctx, metav1.DeleteOptions{}, a.mine()); err != nil {
		return fmt.Errorf("delete certificate signing requests: %w", err)
	}
	return nil
}

// ClaimDevices creates n Pods that no scheduler schedules, and that each get a ResourceClaim
// from one template.
func (a *Arena) ClaimDevices(ctx context.Context, n int) error {
	const name = "gpu"
	template := &resourcev1.ResourceClaimTemplate{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: a.Namespace}}
	template.Spec.Spec.Devices.Requests = []resourcev1.DeviceRequest{{Name: name, Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: "gpu.example.com"}}}
	if _, err := a.client.ResourceV1().ResourceClaimTemplates(a.Namespace).Create(ctx, template, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create resource claim template: %w", err)
	}
	return Parallel(20, n, func(i int) error {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("trains-%d", i), Namespace: a.Namespace}, Spec: podSpec("nginx")}
		pod.Spec.SchedulerName = noScheduler
		pod.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: name, ResourceClaimTemplateName: ptr.To(name)}}
		pod.Spec.Containers[0].Resources.Claims = []corev1.ResourceClaim{{Name: name}}
		return a.createPod(ctx, pod)
	})
}

// ClaimedDevices counts the Pods whose status names their ResourceClaim.
func (a *Arena) ClaimedDevices(ctx context.Context) (*Tally, error) {
	return a.tally(ctx, "pods have their claim", func(from metav1.ListOptions) (watch.Interface, error) {
		return a.client.CoreV1().Pods(a.Namespace).Watch(ctx, from)
	}, func(object runtime.Object) bool {
		pod, is := object.(*corev1.Pod)
		return is && len(pod.Status.ResourceClaimStatuses) > 0 && pod.Status.ResourceClaimStatuses[0].ResourceClaimName != nil
	})
}
