// Answers calls from launch plans, in front of the Python functions that stand in torch's dispatch tables.
//
// A plan (opsmith/dispatch/plans/plan.py) says what a kernel's host code does for one signature: which memory it
// allocates, which compiled kernels it launches with which parameters, what it returns. Plans are made in Python
// and handed over as 64-bit words. A call without one goes on to the Python function; see front.py.

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided_ops.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <c10/macros/Export.h>
#include <c10/util/SmallVector.h>
#include <c10/util/bit_cast.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bitset>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

// Of torch/csrc/jit/frontend/tracer.h, which takes seconds to compile.
namespace torch::jit::tracer {
struct TracingState;
TORCH_API const std::shared_ptr<TracingState>& getTracingState();
}  // namespace torch::jit::tracer

namespace {

using torch::jit::Stack;
using Words = c10::SmallVector<int64_t, 64>;

// As CUlaunchAttribute: one of a kernel's settings by its number, and a value of at most 64 bytes.
struct LaunchAttribute {
  alignas(8) int id;
  alignas(8) std::array<int, 16> value;
};

// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel waits by itself for those before it.
constexpr LaunchAttribute kOverlaps{6, {1}};

// As CUlaunchConfig.
struct LaunchConfig {
  std::array<unsigned, 3> grid;
  std::array<unsigned, 3> block;
  unsigned shared_bytes;
  void* stream;
  const LaunchAttribute* attributes;
  unsigned attribute_count;
};

// As cuLaunchKernelEx.
using LaunchFunction = int (*)(const LaunchConfig* config, void* function, void** parameters, void** extra);
// As aoti_torch_get_current_cuda_stream.
using StreamFunction = int (*)(int32_t device, void** stream);

// CUDA_ERROR_INVALID_CONTEXT: this thread has not used the device yet.
constexpr int kNoContext = 201;

// ---------------------------------------------------------------- calls

enum class Kind : int64_t { kNone, kTensor, kForeign, kNumber, kInt, kDouble, kBool, kString, kDevice, kList };

// A call as words: calls with the same words are answered by the same plan.
class Call {
 public:
  explicit Call(c10::DeviceType device) : device_(device) {
    words.push_back(static_cast<int64_t>(c10::get_default_dtype_as_scalartype()));
    words.push_back(at::globalContext().deterministicAlgorithms());
  }

  // Returns whether a plan may know this value.
  bool add(const c10::IValue& value) {
    if (value.isTensor()) {
      return add(value.toTensor());
    }
    if (value.isNone()) {
      return add(Kind::kNone, 0);
    }
    if (value.isInt()) {
      return add(Kind::kInt, value.toInt());
    }
    if (value.isDouble()) {
      return add(Kind::kDouble, c10::bit_cast<int64_t>(value.toDouble()));
    }
    if (value.isBool()) {
      return add(Kind::kBool, value.toBool());
    }
    if (value.isString()) {
      return add(value.toStringView());
    }
    if (value.isDevice()) {
      const auto device = value.toDevice();
      return add(Kind::kDevice, static_cast<int64_t>(device.type()) << 8 | static_cast<uint8_t>(device.index()));
    }
    return value.isList() && add(value.toListRef());
  }

  std::string_view key() const {
    return {reinterpret_cast<const char*>(words.data()), words.size() * sizeof(int64_t)};
  }

  Words words;
  // In the order of the arguments, those of lists included, numbers that torch wraps in tensors left out.
  c10::SmallVector<const at::Tensor*, 8> tensors;
  // The tensors' first bytes; a replay adds those of what it allocates.
  c10::SmallVector<char*, 16> addresses;

 private:
  bool add(Kind kind, int64_t word) {
    words.push_back(static_cast<int64_t>(kind));
    words.push_back(word);
    return true;
  }

  bool add(std::string_view text) {
    add(Kind::kString, static_cast<int64_t>(text.size()));
    for (const char letter : text) {
      words.push_back(letter);
    }
    return true;
  }

  bool add(c10::ArrayRef<c10::IValue> values) {
    add(Kind::kList, static_cast<int64_t>(values.size()));
    return std::all_of(values.begin(), values.end(), [this](const c10::IValue& value) { return add(value); });
  }

  bool add(const at::Tensor& tensor) {
    if (!tensor.defined()) {
      return add(Kind::kNone, 0);
    }
    const auto* impl = tensor.unsafeGetTensorImpl();
    if (impl->is_wrapped_number()) {
      return add_number(tensor);
    }
    if (!impl->has_storage() || impl->has_symbolic_sizes_strides()) {
      return false;
    }
    if (impl->device_type() != device_) {  // No plan has one: a call with it is left to torch, or goes to Python.
      return add(Kind::kForeign, static_cast<int64_t>(impl->key_set().raw_repr()));
    }
    auto* address = static_cast<char*>(tensor.mutable_data_ptr());
    // An argument that is given twice is another call than two arguments: a kernel's pointers cannot tell them apart.
    add(Kind::kTensor, place_of(impl));
    words.push_back(static_cast<int64_t>(impl->key_set().raw_repr()));
    words.push_back(
        static_cast<int64_t>(tensor.scalar_type()) | static_cast<int64_t>(static_cast<uint8_t>(tensor.device().index())) << 8 |
        static_cast<int64_t>(reinterpret_cast<uintptr_t>(address) % 16) << 16 | tensor.dim() << 24);
    words.append(tensor.sizes().begin(), tensor.sizes().end());
    words.append(tensor.strides().begin(), tensor.strides().end());
    tensors.push_back(&tensor);
    impls_.push_back(impl);
    addresses.push_back(address);
    return true;
  }

  // Where a tensor was added first, or will be now. Most are new, which their mark tells without a look at the others.
  int64_t place_of(const c10::TensorImpl* impl) {
    const uint64_t mark = reinterpret_cast<uintptr_t>(impl) / alignof(std::max_align_t) * 0x9E3779B97F4A7C15 >> 52;
    if (!seen_[mark]) {
      seen_[mark] = true;
      return static_cast<int64_t>(impls_.size());
    }
    return std::find(impls_.begin(), impls_.end(), impl) - impls_.begin();
  }

  // A Python number, which torch passes where a schema says Tensor.
  bool add_number(const at::Tensor& tensor) {
    add(Kind::kNumber, static_cast<int64_t>(tensor.scalar_type()));
    switch (tensor.scalar_type()) {
      case at::kDouble:
      case at::kLong:
        words.push_back(*static_cast<const int64_t*>(tensor.const_data_ptr()));
        return true;
      case at::kBool:
        words.push_back(*static_cast<const bool*>(tensor.const_data_ptr()));
        return true;
      default:
        return false;
    }
  }

  c10::DeviceType device_;
  // Of the tensors, side by side, and marks of them: lists have hundreds, and each is looked for among those before it.
  c10::SmallVector<const c10::TensorImpl*, 8> impls_;
  std::bitset<4096> seen_;
};

// ---------------------------------------------------------------- plans

// Tensors have numbers: first those of the call, then what is allocated, both in order.

struct Memory {
  at::ScalarType dtype;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
};

struct Pointer {
  int64_t slot;
  int64_t number;
  int64_t offset_bytes;
};

struct Launch {
  void* function;
  std::array<unsigned, 3> grid;
  unsigned threads;
  unsigned shared_bytes;
  bool overlaps;
  std::vector<int64_t> slots;  // One for each parameter, whose bytes come first in it.
  std::vector<Pointer> pointers;
};

struct Copy {
  int64_t to;
  int64_t from;
};

// The bytes of an argument, which must not overlap another one's if either is written to.
struct Reach {
  int64_t number;
  int64_t size_bytes;
  bool written;
};

// What is returned: a tensor by its number, -1 for none; a number; or a tensor on the host without dimensions, by its dtype.
struct Result {
  enum Kind : int64_t { kTensor, kNumber, kHostScalar } kind;
  int64_t number;
};

// One of torch's settings fp32_precision and a value of it, as a word.
int64_t precision_word(at::Float32Backend backend, at::Float32Op op, at::Float32Precision value) {
  return static_cast<int64_t>(backend) | static_cast<int64_t>(op) << 8 | static_cast<int64_t>(value) << 16;
}

// Whether the setting has that value now.
bool in_force(int64_t word) {
  const auto backend = static_cast<at::Float32Backend>(word & 0xff);
  const auto op = static_cast<at::Float32Op>(word >> 8 & 0xff);
  return word == precision_word(backend, op, at::globalContext().float32Precision(backend, op));
}

struct Plan {
  std::vector<Memory> allocations;
  std::vector<std::variant<Launch, Copy>> steps;
  bool listed;  // The results are one list.
  std::vector<Result> results;
  std::vector<Reach> reaches;
  std::vector<int64_t> precisions;  // What settings were while it was recorded.
};

// Takes a plan out of the words that encoding.py writes.
class Reader {
 public:
  explicit Reader(const int64_t* words) : next_(words) {}

  Plan plan() {
    Plan plan;
    plan.allocations = several<Memory>([this] { return memory(); });
    plan.steps = several<std::variant<Launch, Copy>>([this] { return step(); });
    plan.listed = number() != 0;
    plan.results = several<Result>([this] { return result(); });
    plan.reaches = several<Reach>([this] { return reach(); });
    plan.precisions = numbers();
    return plan;
  }

 private:
  template <class T, class F>
  std::vector<T> several(F one) {
    std::vector<T> found;
    for (auto left = number(); left > 0; --left) {
      found.push_back(one());
    }
    return found;
  }

  int64_t number() {
    return *next_++;
  }

  std::vector<int64_t> numbers() {
    return several<int64_t>([this] { return number(); });
  }

  Memory memory() {
    const auto dtype = static_cast<at::ScalarType>(number());
    auto sizes = numbers();
    return {dtype, std::move(sizes), numbers()};
  }

  Pointer pointer() {
    const auto slot = number(), tensor = number();
    return {slot, tensor, number()};
  }

  Result result() {
    const auto kind = static_cast<Result::Kind>(number());
    return {kind, number()};
  }

  Reach reach() {
    const auto argument = number(), size_bytes = number();
    return {argument, size_bytes, number() != 0};
  }

  std::variant<Launch, Copy> step() {
    auto* function = reinterpret_cast<void*>(number());
    if (function == nullptr) {
      const auto to = number();
      return Copy{to, number()};
    }
    Launch launch{function, {}, 0, 0, false, {}, {}};
    for (auto& size : launch.grid) {
      size = static_cast<unsigned>(number());
    }
    launch.threads = static_cast<unsigned>(number());
    launch.shared_bytes = static_cast<unsigned>(number());
    launch.overlaps = number() != 0;
    launch.slots = numbers();
    launch.pointers = several<Pointer>([this] { return pointer(); });
    return launch;
  }

  const int64_t* next_;
};

// Finds a key without making a string of it.
struct Hash {
  using is_transparent = void;
  size_t operator()(std::string_view key) const {
    return std::hash<std::string_view>{}(key);
  }
};

// After so many calls one after another that were all left to torch's own kernel, only one in a few is looked at: looking
// costs a quarter of a microsecond, and a model that decodes makes a thousand such calls for a token.
constexpr uint32_t kSure = 2048, kLookedAt = 16;

using Clock = std::chrono::steady_clock;

// What is done with calls that have the same words: a plan answers them, or, without one, torch's own kernel does until
// then. Later ones go to Python, which may know more.
struct Known {
  std::shared_ptr<const Plan> plan;
  Clock::time_point left_until;
};

// Keys that are kept for an op; a model with dynamic shapes brings a new one with each call. What is forgotten Python
// tells again.
constexpr size_t kMostKnown = 4096;

// The plans of one kernel in use.
struct Plans {
  std::unordered_map<std::string, Known, Hash, std::equal_to<>> by_key;
  std::atomic<int64_t> replayed{0};
  std::atomic<int64_t> left{0};
};

// Guards all tables, and which one each front uses. It is held for a look-up, never while something is called.
std::shared_mutex tables;

// ---------------------------------------------------------------- threads

struct Thread {
  // This thread is in a Python function that a front called: what is called there goes to Python's functions too,
  // which know whether a kernel runs.
  bool in_python = false;
  // The call that had no plan, while its Python function may still make one.
  const Call* missed = nullptr;
};

thread_local Thread thread;

class InPython {
 public:
  explicit InPython(const Call* missed) : before_(thread) {
    thread = {true, missed};
  }
  ~InPython() {
    thread = before_;
  }
  InPython(const InPython&) = delete;
  InPython& operator=(const InPython&) = delete;

 private:
  Thread before_;
};

// ---------------------------------------------------------------- fronts

enum class Mode { kOff, kPython, kPlans };

// What stands in the table of one overload under a device's key.
class Front final : public c10::OperatorKernel {
 public:
  Front(c10::OperatorHandle op, c10::DispatchKey key, c10::DeviceType device, LaunchFunction launch, StreamFunction stream)
      : key_(key),
        device_(device),
        guard_(c10::impl::getDeviceGuardImpl(device)),
        launch_(launch),
        stream_(stream),
        original_(op.getComputedKernelForDispatchKey(key)) {}

  // From now on there is a Python function in the table.
  void put_before(c10::SafeKernelFunction python) {
    python_.emplace(std::move(python));
  }

  void use(Mode mode, std::shared_ptr<Plans> plans) {
    const std::unique_lock lock(tables);
    plans_ = std::move(plans);
    mode_ = mode;
    left_in_a_row_ = unseen_ = 0;
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    const auto mode = mode_.load(std::memory_order_relaxed);
    if (mode == Mode::kOff) {
      original_.callBoxed(op, keys, stack);
      return;
    }
    // What torch.jit.trace looks into, and comes here with a state, is for Python to leave to torch.
    if (mode == Mode::kPython || thread.in_python || torch::jit::tracer::getTracingState() != nullptr) {
      const InPython inside(nullptr);
      python_->callBoxed(op, keys, stack);
      return;
    }
    if (left_in_a_row_.load(std::memory_order_relaxed) >= kSure &&
        unseen_.fetch_add(1, std::memory_order_relaxed) + 1 < kLookedAt) {
      original_.callBoxed(op, keys, stack);
      return;
    }
    const auto arguments = torch::jit::last(*stack, op.schema().arguments().size());
    Call call(device_);
    const bool known = std::all_of(
        arguments.begin(), arguments.end(), [&](const c10::IValue& value) { return call.add(value); });
    if (known && answer(op, keys, call, stack, arguments.size())) {
      return;
    }
    left_in_a_row_.store(0, std::memory_order_relaxed);
    const InPython inside(known ? &call : nullptr);
    python_->callBoxed(op, keys, stack);
  }

 private:
  // Returns whether a plan answered, or torch's own kernel a call that is left to it.
  bool answer(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Call& call, Stack* stack, size_t count) {
    std::shared_ptr<Plans> plans;
    std::shared_ptr<const Plan> plan;
    {
      const std::shared_lock lock(tables);
      if (plans_ == nullptr) {
        return false;
      }
      const auto found = plans_->by_key.find(call.key());
      if (found == plans_->by_key.end()) {
        return false;
      }
      plan = found->second.plan;
      const auto until = found->second.left_until;
      if (plan == nullptr && until != Clock::time_point::max() && until < Clock::now()) {
        return false;
      }
      plans = plans_;
    }
    if (plan == nullptr) {
      left_in_a_row_.fetch_add(1, std::memory_order_relaxed);
      plans->left.fetch_add(
          std::max<int64_t>(unseen_.exchange(0, std::memory_order_relaxed), 1), std::memory_order_relaxed);
      original_.callBoxed(op, keys, stack);
      return true;
    }
    left_in_a_row_.store(0, std::memory_order_relaxed);
    if (!fits(*plan, call) || !returns(op, *plan)) {
      return false;
    }
    c10::SmallVector<at::Tensor, 4> made;
    if (!replay(*plan, call, made)) {
      return false;
    }
    plans->replayed.fetch_add(1, std::memory_order_relaxed);
    c10::SmallVector<c10::IValue, 4> results;
    for (const auto& [kind, number] : plan->results) {
      switch (kind) {
        case Result::kNumber:
          results.emplace_back(number);
          break;
        case Result::kHostScalar:
          results.emplace_back(at::detail::empty_cpu({}, static_cast<at::ScalarType>(number)));
          break;
        case Result::kTensor:
          results.emplace_back(number < 0 ? at::Tensor() : tensor(call, made, number));
          break;
      }
    }
    torch::jit::drop(*stack, count);
    if (plan->listed) {
      c10::List<at::Tensor> list;
      for (auto& result : results) {
        list.push_back(std::move(result).toTensor());
      }
      stack->emplace_back(std::move(list));
      return true;
    }
    for (auto& result : results) {
      stack->emplace_back(std::move(result));
    }
    return true;
  }

  // What the words of a call do not say: the current device, settings that host code reads, whether arguments overlap.
  bool fits(const Plan& plan, const Call& call) const {
    if (call.tensors.empty() || call.tensors[0]->device().index() != guard_->getDevice().index()) {
      return false;
    }
    if (!std::all_of(plan.precisions.begin(), plan.precisions.end(), in_force)) {
      return false;
    }
    return are_apart(plan.reaches, call);
  }

  // Whether no argument that is written to overlaps another one: by their first bytes, one after another.
  static bool are_apart(const std::vector<Reach>& reaches, const Call& call) {
    c10::SmallVector<std::pair<const char*, const Reach*>, 8> sorted;
    for (const auto& reach : reaches) {
      sorted.emplace_back(call.addresses[reach.number], &reach);
    }
    if (!std::is_sorted(sorted.begin(), sorted.end())) {
      std::sort(sorted.begin(), sorted.end());
    }
    const char *end = nullptr, *written_end = nullptr;
    for (const auto& [first, reach] : sorted) {
      if (first < (reach->written ? end : written_end)) {
        return false;
      }
      end = std::max(end, first + reach->size_bytes);
      written_end = reach->written ? end : written_end;
    }
    return true;
  }

  // Whether a plan's results are as many as the op returns; a mistake of the kernel's is for Python to find.
  static bool returns(const c10::OperatorHandle& op, const Plan& plan) {
    const auto& due = op.schema().returns();
    const bool list_due = due.size() == 1 && due[0].type()->kind() == c10::TypeKind::ListType;
    return plan.listed == list_due && (list_due || plan.results.size() == due.size());
  }

  // Returns false where nothing has been launched, because this thread cannot launch yet.
  bool replay(const Plan& plan, Call& call, c10::SmallVector<at::Tensor, 4>& made) const {
    for (const auto& memory : plan.allocations) {
      // As eager allocates, whatever allocator is in use and whether or not new memory is to be filled.
      made.push_back(at::_ops::empty_strided::redispatch(
          c10::DispatchKeySet(key_), c10::fromIntArrayRefKnownNonNegative(memory.sizes),
          c10::fromIntArrayRefKnownNonNegative(memory.strides), memory.dtype, c10::kStrided,
          call.tensors[0]->device(), false));
      call.addresses.push_back(static_cast<char*>(made.back().mutable_data_ptr()));
    }
    void* stream = nullptr;
    TORCH_CHECK(stream_(call.tensors[0]->device().index(), &stream) == 0, "the current stream cannot be found out");
    bool begun = false;
    for (const auto& step : plan.steps) {
      if (const auto* copy = std::get_if<Copy>(&step)) {
        at::_ops::copy_::redispatch(
            c10::DispatchKeySet(key_), const_cast<at::Tensor&>(tensor(call, made, copy->to)),
            tensor(call, made, copy->from), false);
        continue;
      }
      const auto error = launch(std::get<Launch>(step), call, stream);
      if (error == kNoContext && !begun) {
        return false;
      }
      TORCH_CHECK(error == 0, "a kernel of a launch plan was refused with CUDA error ", error);
      begun = true;
    }
    return true;
  }

  int launch(const Launch& launch, const Call& call, void* stream) const {
    Words slots(launch.slots.begin(), launch.slots.end());
    for (const auto& pointer : launch.pointers) {
      slots[pointer.slot] = reinterpret_cast<int64_t>(call.addresses[pointer.number] + pointer.offset_bytes);
    }
    c10::SmallVector<void*, 64> parameters;
    for (auto& slot : slots) {
      parameters.push_back(&slot);
    }
    const LaunchConfig config{
        launch.grid, {launch.threads, 1, 1}, launch.shared_bytes, stream, &kOverlaps, launch.overlaps ? 1U : 0U};
    return launch_(&config, launch.function, parameters.data(), nullptr);
  }

  static const at::Tensor& tensor(const Call& call, const c10::SmallVector<at::Tensor, 4>& made, size_t number) {
    return number < call.tensors.size() ? *call.tensors[number] : made[number - call.tensors.size()];
  }

  const c10::DispatchKey key_;
  const c10::DeviceType device_;
  const c10::impl::DeviceGuardImplInterface* const guard_;
  const LaunchFunction launch_;
  const StreamFunction stream_;
  const c10::SafeKernelFunction original_;
  std::optional<c10::SafeKernelFunction> python_;
  std::atomic<Mode> mode_{Mode::kOff};
  // Calls since one that was not left to torch's own kernel, and those of them since the last that was looked at.
  std::atomic<uint32_t> left_in_a_row_{0}, unseen_{0};
  std::shared_ptr<Plans> plans_;
};

// A front and its place in torch's table.
struct Registration {
  c10::OperatorHandle op;
  c10::DispatchKey key;
  std::unique_ptr<Front> unregistered;
  Front* front;
  std::optional<c10::RegistrationHandleRAII> handle;
};

}  // namespace

// ---------------------------------------------------------------- what launcher.py calls

extern "C" {

// A front for an overload, not in the table yet: what is there now is what it calls while it is off.
Registration* opsmith_front(
    const char* op, const char* overload, const char* key, const char* device, LaunchFunction launch,
    StreamFunction stream) {
  try {
    const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(op, overload);
    const auto dispatch_key = c10::parseDispatchKey(key);
    auto front = std::make_unique<Front>(handle, dispatch_key, c10::Device(device).type(), launch, stream);
    auto* address = front.get();
    return new Registration{handle, dispatch_key, std::move(front), address, std::nullopt};
  } catch (const std::exception&) {
    return nullptr;
  }
}

// Put it into the table, before what is there now. Returns whether that was possible.
bool opsmith_register(Registration* registration) {
  try {
    registration->front->put_before(registration->op.getComputedKernelForDispatchKey(registration->key));
    registration->handle.emplace(c10::Dispatcher::singleton().registerImpl(
        registration->op.operator_name(), registration->key,
        c10::KernelFunction::makeFromBoxedFunctor(std::move(registration->unregistered)), std::nullopt, nullptr,
        "opsmith's launcher"));
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

// Take it out of the table. A thread may have looked it up: whoever calls this keeps the table's kernel alive.
void opsmith_unregister(Registration* registration) {
  delete registration;
}

// Answer calls by plans (null: leave them to Python), or leave them to torch's own kernel.
void opsmith_use(Registration* registration, bool on, std::shared_ptr<Plans>* plans) {
  const auto mode = !on ? Mode::kOff : plans == nullptr ? Mode::kPython : Mode::kPlans;
  registration->front->use(mode, plans == nullptr ? nullptr : *plans);
}

// Torch's number of a dtype that Python calls so.
int64_t opsmith_dtype(const char* name) {
  return static_cast<int64_t>(c10::getStringToDtypeMap().at(name));
}

// What a plan says of one of torch's settings fp32_precision, by the names that Python has.
int64_t opsmith_precision(const char* backend, const char* op, const char* value) {
  return precision_word(at::str2backend(backend), at::str2op(op), at::str2precision(value));
}

std::shared_ptr<Plans>* opsmith_plans() {
  return new std::shared_ptr<Plans>(std::make_shared<Plans>());
}

void opsmith_free_plans(std::shared_ptr<Plans>* plans) {
  delete plans;
}

void opsmith_clear(std::shared_ptr<Plans>* plans) {
  const std::unique_lock lock(tables);
  (*plans)->by_key.clear();
}

int64_t opsmith_replayed(std::shared_ptr<Plans>* plans) {
  return (*plans)->replayed.load();
}

int64_t opsmith_left(std::shared_ptr<Plans>* plans) {
  return (*plans)->left.load();
}

// Whether this thread is in a Python function that a front called; from now on it is, or passes for not being.
bool opsmith_in_python(bool now) {
  return std::exchange(thread.in_python, now);
}

// Keep a plan for the call that this thread is answering in Python, or (null) leave it and those like it to torch's own
// kernel for so long, or (negative) for good. Returns whether there is such a call.
bool opsmith_learn(std::shared_ptr<Plans>* plans, const int64_t* words, int64_t milliseconds) {
  if (thread.missed == nullptr) {
    return false;
  }
  auto plan = words == nullptr ? nullptr : std::make_shared<const Plan>(Reader(words).plan());
  const std::unique_lock lock(tables);
  const auto until =
      milliseconds < 0 ? Clock::time_point::max() : Clock::now() + std::chrono::milliseconds(milliseconds);
  auto& known = (*plans)->by_key;
  if (known.size() >= kMostKnown) {
    known.clear();
  }
  known.insert_or_assign(std::string(thread.missed->key()), Known{std::move(plan), until});
  return true;
}

}  // extern "C"
