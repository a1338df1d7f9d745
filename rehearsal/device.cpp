// The C++ half of the rehearsal device: what PyTorch asks of CUDA outside its kernels, answered without a card.
//
// A CPU build of PyTorch refuses autograd graphs, guards and pinned memory of "cuda:N" because no library answers for
// CUDA. This one does: a device guard (current device per thread, one stream, events that keep the time), the CUDA
// hooks (is there a device, how many) and an allocator of "pinned" host memory. There are no kernels; the Python half
// computes every operator on the CPU. Outside `rehearsed_cuda` the number of cards is 0 and nothing is available.
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>
#include <chrono>
#include <map>
#include <mutex>

namespace {

std::atomic<int> cards{0};
// As in CUDA, every thread has its own current device and starts on device 0.
thread_local c10::DeviceIndex current = 0;

c10::Device device_of(c10::DeviceIndex index) {
  return c10::Device(c10::DeviceType::CUDA, index < 0 ? current : index);
}

// Milliseconds of a clock that never goes back.
double now() {
  auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(since).count();
}

// Every CUDA device has its default stream and no other; an event is the instant at which it was recorded.
struct Guard final : c10::impl::NoOpDeviceGuardImpl<c10::DeviceType::CUDA> {
  c10::Device exchangeDevice(c10::Device device) const override {
    auto before = device_of(current);
    uncheckedSetDevice(device);
    return before;
  }
  c10::Device getDevice() const override { return device_of(current); }
  void setDevice(c10::Device device) const override { uncheckedSetDevice(device); }
  void uncheckedSetDevice(c10::Device device) const noexcept override { current = device_of(device.index()).index(); }
  c10::Stream getStream(c10::Device device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, device_of(device.index()));
  }
  c10::Stream getDefaultStream(c10::Device device) const override { return getStream(device); }
  c10::Stream getNewStream(c10::Device device, int) const override { return getStream(device); }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override { return getStream(device); }
  c10::Stream exchangeStream(c10::Stream stream) const noexcept override { return stream; }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(cards.load()); }
  void record(void** event, const c10::Stream&, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (*event == nullptr) *event = new double;
    *static_cast<double*>(*event) = now();
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override { delete static_cast<double*>(event); }
  double elapsedTime(void* start, void* end, const c10::DeviceIndex) const override {
    return *static_cast<double*>(end) - *static_cast<double*>(start);
  }
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const c10::DeviceIndex) const override {}
};

// The address ranges that were allocated as pinned: start -> end.
std::map<const char*, const char*> pinned;
std::mutex pinned_lock;

bool is_pinned(const void* data) {
  std::lock_guard<std::mutex> held(pinned_lock);
  auto address = static_cast<const char*>(data);
  auto next = pinned.upper_bound(address);
  return next != pinned.begin() && address < std::prev(next)->second;
}

void free_pinned(void* data) {
  {
    std::lock_guard<std::mutex> held(pinned_lock);
    pinned.erase(static_cast<const char*>(data));
  }
  c10::GetCPUAllocator()->raw_deallocate(data);
}

// "Pinned" memory is ordinary memory whose addresses are remembered, so that is_pinned() can tell.
struct PinnedAllocator final : at::HostAllocator {
  c10::DataPtr allocate(size_t bytes) override {
    auto data = c10::GetCPUAllocator()->raw_allocate(bytes);
    if (data != nullptr) {
      std::lock_guard<std::mutex> held(pinned_lock);
      pinned[static_cast<const char*>(data)] = static_cast<const char*>(data) + bytes;
    }
    return {data, data, &free_pinned, c10::Device(c10::DeviceType::CPU)};
  }
  void copy_data(void* target, const void* source, size_t bytes) const override {
    default_copy_data(target, source, bytes);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}
};

const Guard guard;
const c10::impl::DeviceGuardImplRegistrar guard_registrar(c10::DeviceType::CUDA, &guard);
PinnedAllocator pinned_allocator;
const at::HostAllocatorRegistry<at::kCUDA> pinned_registrar(&pinned_allocator);

}  // namespace

namespace at {

// PyTorch looks the hooks up by this very name.
struct CUDAHooks final : CUDAHooksInterface {
  CUDAHooks(CUDAHooksArgs) {}
  void init() const override {}
  bool isBuilt() const override { return cards > 0; }
  bool isAvailable() const override { return cards > 0; }
  bool hasCUDA() const override { return cards > 0; }
  bool hasPrimaryContext(DeviceIndex) const override { return cards > 0; }
  bool isPinnedPtr(const void* data) const override { return is_pinned(data); }
  Allocator* getPinnedMemoryAllocator() const override { return &pinned_allocator; }
  DeviceIndex deviceCount() const override { return static_cast<DeviceIndex>(cards.load()); }
  DeviceIndex getCurrentDevice() const override { return current; }
  DeviceIndex current_device() const override { return current; }
  void setCurrentDevice(DeviceIndex device) const override { current = device; }
  DeviceIndex exchangeDevice(DeviceIndex device) const override { return std::exchange(current, device); }
  DeviceIndex maybeExchangeDevice(DeviceIndex device) const override {
    return device < 0 ? current : std::exchange(current, device);
  }
  int getNumGPUs() const override { return cards; }
  void deviceSynchronize(DeviceIndex) const override {}
};
REGISTER_CUDA_HOOKS(CUDAHooks);

}  // namespace at

extern "C" {
void rehearsal_set_cards(int count) { cards = count; }
void rehearsal_set_device(int index) { current = static_cast<c10::DeviceIndex>(index); }
int rehearsal_current_device() { return current; }
}
